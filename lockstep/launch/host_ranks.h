// A job's ranks on one host, as whoever leads the job sees them: its own children (LocalRanks), or those of an agent on
// another host (RemoteRanks).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/poll_set.h"
#include "lockstep/launch/stragglers.h"
#include "lockstep/launch/verdict.h"
#include "lockstep/memory/control_page.h"
#include "lockstep/rendezvous/view.h"
#include "lockstep/trace/flight_record.h"
#include "lockstep/view/live/live_reader.h"
#include "lockstep/view/profile/timeline.h"

namespace lockstep::launch {

/// What the ranks of a job hear of who is in it.
struct ViewNews {
  View view = {};
  std::vector<std::pair<Life, std::string>> out = {};  ///< lives that are in it no longer, and why
};

class HostRanks {
 public:
  HostRanks() = default;
  virtual ~HostRanks() = default;
  HostRanks(const HostRanks&) = delete;
  HostRanks& operator=(const HostRanks&) = delete;

  /// Says what to wait for; what happened meanwhile shows in the calls below.
  virtual void watch(PollSet& poll) = 0;
  /// Wait no longer than this.
  virtual Deadline wake_at() const = 0;
  /// Of ranks that have ended since the last call, in the order of their ends as far as that is known.
  virtual std::vector<Ending> take_endings() = 0;
  virtual bool any_running() const = 0;
  /// Why the job failed first, as this host's ranks know it.
  virtual std::optional<FirstCause::Cause> first_cause() const = 0;

  /// To all that run, or to one of them; `whole_family`: to what they have started as well.
  virtual void signal(int signal, bool whole_family, std::optional<int> rank = {}) = 0;
  /// The ranks hear why the job has failed, unless they know a cause already; those that wait, at once.
  virtual void tell(const FirstCause::Cause& cause) = 0;
  /// A rank has ended with 0. Others that wait for it to come to the job's world `number` (from 0) fail by `absent`, which names
  /// it; so do those that come there later. For the host that has the job's store.
  virtual void call_off_world(int number, const Error& absent) = 0;
  /// The cause with this text concerns nobody any more.
  virtual void forget_cause(const std::string& text) = 0;
  /// Something has failed somewhere: how the processes are now is kept for the flight record.
  virtual void note_failure() = 0;
  /// Ranks that have not ended, as they were when last looked at, which this asks for.
  virtual std::vector<Straggler> stragglers() = 0;

  /// In a job whose ranks may die and come back: a new view is there, and who has left it. The first host has the job's store.
  virtual void publish(const ViewNews& news) = 0;
  /// A rank of this host that has ended becomes its next incarnation. Where that cannot be, it ends once more, `lost`.
  virtual void start_again(const Life& life) = 0;
  /// Ends ranks that were started again and have not been with the others yet.
  virtual void end_latecomers() = 0;
  /// False: its host is gone.
  virtual bool can_start() const = 0;
  virtual bool has_rank(int rank) const = 0;
  /// Incarnations that have come to the job's meeting place since the last call.
  virtual std::vector<Life> take_arrivals() = 0;

  /// What the ranks do, in this process's clock, as they were when last looked at, which this asks for. nullopt: not known yet.
  virtual std::optional<view::LiveHost> look_live() = 0;

  /// All ranks have ended: gives what they have left behind so long to end by itself, and kills the rest.
  virtual void finish(std::chrono::milliseconds grace) = 0;
  /// That is done.
  virtual bool is_finished() const = 0;
  /// How many processes had to be killed.
  virtual int left_behind() const = 0;
  /// How the job came out: `summary` for the user, and whether all ranks start again. For who has a launcher there.
  virtual void conclude(int /*exit_code*/, const std::string& /*summary*/, bool /*again*/) {}
  /// That has been heard.
  virtual bool is_concluded() const { return true; }
  /// What the ranks did last, in this process's clock and with world ranks; without endings. nullopt where that is not known.
  virtual std::optional<trace::FlightRecord> record() const = 0;
  /// The events of the whole run, in this process's clock, where a timeline is kept. Once, when all has finished.
  virtual std::vector<view::RankTimeline> take_timeline() = 0;
  /// It should have said something by now: what is known of its ranks is old.
  virtual bool is_silent() const { return false; }
  /// How far clocks may be apart there.
  virtual std::uint64_t clock_error_ns() const { return 0; }
};

/// Of all hosts, by rank.
inline std::vector<Straggler> stragglers_of(const std::vector<std::unique_ptr<HostRanks>>& hosts) {
  std::vector<Straggler> all;
  for (const auto& host : hosts) std::ranges::move(host->stragglers(), std::back_inserter(all));
  std::ranges::sort(all, {}, &Straggler::rank);
  return all;
}

}  // namespace lockstep::launch
