// Our own engine: collectives as schedules over arenas, shared-memory rings and sockets.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/native/call_comparison.h"
#include "lockstep/backend/native/native_task.h"
#include "lockstep/backend/native/small_call.h"
#include "lockstep/execute/plan.h"
#include "lockstep/execute/progress.h"
#include "lockstep/memory/arena.h"
#include "lockstep/trace/group_names.h"
#include "lockstep/trace/open_calls.h"
#include "lockstep/trace/recorder.h"

namespace lockstep {

struct NativeOptions {
  std::string name;  ///< of the group, as in messages
  int rank = 0;
  std::vector<int> world_of;  ///< group rank -> world rank; its size is the group's
  bool one_host = true;
  int ranks_per_node = 0;              ///< of this host's memory: as in Call
  std::shared_ptr<HostRegion> region;  ///< of the ranks on this host
  int region_rank = 0;                 ///< this rank's number in it
  std::shared_ptr<ControlPage> page;
  std::vector<int> page_rank;  ///< group rank -> number in the page; -1: another host
  std::unique_ptr<Transport> transport;
  std::shared_ptr<Progress> progress;
  trace::Recorder* recorder = nullptr;  ///< borrowed; not null
  std::shared_ptr<trace::OpenCalls> open_calls = std::make_shared<trace::OpenCalls>();
  std::shared_ptr<trace::GroupNames> group_names = std::make_shared<trace::GroupNames>();
  Tuning tuning;
  std::size_t mailbox_bytes = std::size_t{256} << 20;  ///< see Mailbox
  std::chrono::nanoseconds timeout{};
  std::chrono::nanoseconds warn_after{};
};

class NativeBackend final : public Backend,
                            public Engine,
                            public std::enable_shared_from_this<NativeBackend> {
 public:
  static std::shared_ptr<NativeBackend> make(NativeOptions options);
  ~NativeBackend() override;

  std::unique_ptr<PendingWork> submit(const Request& request) override;
  void poll() override;
  std::optional<FirstCause::Cause> failure() override;
  void abort(const std::string& reason) override;
  std::uint64_t own_work_ns() const override;
  ArenaBlock allocate(std::size_t bytes) override;
  std::shared_ptr<HostRegion> shared_region() const override {
    return options_.one_host ? options_.region : nullptr;
  }
  void leave() override;
  /// Fails the group, unless it has failed, and tells the others why, on this host and on others.
  void fail(const Error& error);

  // Engine, under the progress lock.
  bool advance() override;
  bool is_idle() const override { return active_.empty(); }
  void look() override;
  void add_wait_descriptors(std::vector<pollfd>& descriptors) override;

  // For NativeTask and CallComparison, under the progress lock.
  Link& link(int peer);
  bool has_link(int peer) const { return links_.contains(peer); }
  Mailbox& mailbox() { return mailbox_; }
  StagingRing& staging_ring() { return staging_ring_; }
  CrossingCopies& crossing() { return crossing_; }
  Arrivals* arrivals() { return arrivals_ ? &*arrivals_ : nullptr; }
  HostRegion& region() { return *options_.region; }
  PlanCache& plans() { return plans_; }
  int rank() const { return options_.rank; }
  int ranks() const { return static_cast<int>(options_.world_of.size()); }
  int world_rank(int rank) const { return options_.world_of[static_cast<std::size_t>(rank)]; }

  trace::OpenCalls& open_calls() { return *options_.open_calls; }

  // For NativeWork.
  Progress& progress() { return *options_.progress; }
  void recycle(std::unique_ptr<NativeTask> task);
  /// Why this task failed.
  Error error_of(const NativeTask& task) const;
  void abandon(const NativeTask& task) noexcept;

 private:
  explicit NativeBackend(NativeOptions options);
  Lending lending() const;
  std::unique_ptr<NativeTask> take_task();
  /// What submit() returns if the call is a small one that can be done, or at least begun, at once.
  std::optional<std::unique_ptr<PendingWork>> submit_small(const Request& request);
  /// Whether a small message could be passed at once. If not, nothing is lost: submit() goes on with it.
  bool pass_small_message(const Request& request);
  void notice_failure_elsewhere();
  bool may_be_quick() const;
  void record_quick(const Request& request, std::uint64_t number, std::uint64_t begin_ns,
                    std::uint64_t end_ns, std::uint64_t algorithm);
  /// The number that a call gets.
  std::uint64_t& counter_of(const Request& request);
  void look_shortly_at(const NativeTask& task);
  std::unique_ptr<PendingWork> pending(std::unique_ptr<NativeTask> task);
  bool advance_links();
  void finish(NativeTask& task);
  void complete(std::uint64_t number);
  std::uint64_t number_in_record(const Plan& plan);
  void fail(FirstCause::Cause cause);
  /// "rank 1 gave up" and `what`.
  void give_up(const std::string& what);
  Error make_error(const Signature& signature, std::uint64_t number) const;
  void look_at_peers(const std::vector<int>& missing);
  void look_at_calls();
  FirstCause::Cause cause_of(const Error& error) const;
  void look_at_clock(NativeTask& task);
  std::string unclaimed(const NativeTask& task) const;
  FirstCause::Cause loss(const PeerNews& news) const;
  struct Culprits {
    std::vector<int> ranks;
    bool is_circle = false;  ///< each waits for the next, and this rank is one of them
  };
  Culprits culprits(const std::vector<int>& missing);
  std::string names(const std::vector<int>& ranks) const;

  NativeOptions options_;
  std::shared_ptr<Arena> arena_;
  std::optional<Arrivals> arrivals_;
  std::optional<SmallCall> small_call_;
  PlanCache plans_;
  std::map<int, Link> links_;  // by peer: of collectives
  Mailbox mailbox_;
  CallComparison calls_{*this};
  std::deque<NativeTask*> active_;  // in the order of submission
  std::vector<std::unique_ptr<NativeTask>> idle_tasks_;
  std::uint64_t next_collective_ = 0;
  std::map<int, std::uint64_t> next_sent_, next_received_;  // by peer
  StagingRing staging_ring_{plans_.staging_bytes()};
  CrossingCopies crossing_;
  std::deque<bool> completed_;  // from completed_through_ on
  std::uint64_t completed_through_ = 0;
  std::uint32_t group_number_;
  std::vector<std::uint64_t> numbers_in_record_;  // of algorithms, 0: not known yet
  int name_place_ = trace::GroupNames::nowhere;
  std::optional<FirstCause::Cause> failure_;
  std::map<int, std::uint64_t> gone_since_ns_;  // peers that died or left, by rank
  bool told_waiting_ = false;
};

}  // namespace lockstep
