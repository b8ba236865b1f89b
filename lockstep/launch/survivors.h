// A job that goes on when ranks die (`lockstep run --tolerate`, --restart, --min-np): tells the ranks who is left, starts those
// again that may be, and puts out who does not answer.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/launch/host_ranks.h"
#include "lockstep/launch/output/rank_output.h"
#include "lockstep/launch/roster.h"
#include "lockstep/launch/run.h"
#include "lockstep/trace/flight_record.h"

namespace lockstep::launch {

class Survivors {
 public:
  /// The ranks of `hosts` have been started. Borrows all.
  Survivors(const RunOptions& options, const std::vector<std::unique_ptr<HostRanks>>& hosts,
            RankOutput& output);

  /// True: the job goes on without this end, or its rank has been started again. False: it is one as of any job.
  bool take(Ending& ending);
  /// At what the ranks say, and tells them what is new.
  void look();
  /// The hosts that there are now, as a discovery script says: ranks that have a slot are started, those that have none any more ended.
  void take_hosts(const std::vector<Host>& hosts);
  /// The script did not say: `problem`, which is told where it is new.
  void note_problem(const std::string& problem);
  /// The job goes on without a rank that does not answer. False: it may not be done without.
  bool put_out(int rank, const std::string& why);

  /// Whether there are ranks without which the job cannot go on.
  bool needs_some() const { return needed_ > 0; }
  /// A look at whether a rank without which the job cannot go on is stopped, for longer than `at_most`.
  void look_for_stopped_ones(const std::vector<Straggler>& running, std::chrono::nanoseconds at_most);
  /// The user has stopped the whole job, or lets it go on.
  void forget_stopped_ones() { stopped_since_.reset(); }
  /// Whether it is being ended by put_out() or take_hosts().
  bool has_killed(int rank) const { return killed_.contains(rank); }
  /// Such a rank, for which others have waited until a time-out, or that was stopped for too long.
  const std::optional<int>& stuck() const { return stuck_; }

  /// Those that take() has taken.
  const std::vector<Ending>& departed() const { return departed_; }
  /// Who came and went, for the flight record.
  void note_changes(trace::FlightRecord& record) const;
  /// Why the job did not go on without a rank that has failed; "": none has.
  const std::string& why_not() const { return why_not_; }

 private:
  HostRanks& host_of(int rank) const;
  void take_slots(const HostRanks& host, const std::string& name, int slots);
  void start(int rank);
  void take_arrivals(HostRanks& host);
  void take_cause(HostRanks& host);
  /// A rank without which the job cannot go on, and that is stopped.
  std::optional<int> stopped_one(const std::vector<Straggler>& running) const;
  /// The same, where it is for it that others have waited when they blamed `culprit`.
  std::optional<int> awaited_one(int culprit) const;
  /// The job cannot go on without it.
  bool is_needed(int rank) const;
  void note_done(int rank);
  void publish();
  void end_fenced();
  void tell(const std::string& what);
  std::string who_is_left() const;
  std::string too_few() const;

  const bool ends_together_;
  const std::vector<Host> host_names_;  // in the order of hosts_
  const std::vector<std::unique_ptr<HostRanks>>& hosts_;
  RankOutput& output_;
  Roster roster_;
  std::vector<bool> running_;  // by rank
  int needed_ = 0;             // ranks that the job cannot do without, and that have not ended well
  bool is_ended_ = false;      // but for ranks that are out
  std::optional<int> stuck_;
  std::optional<std::pair<int, Deadline>> stopped_since_;  // by which it has to go on again
  bool is_done_ = false;                                   // by one that has ended well
  bool is_worth_telling_ = false;                          // what has changed in the view
  std::map<int, std::string> killed_;                      // by us, and why
  std::vector<Ending> departed_;
  std::string why_not_;
  std::vector<trace::FlightChange> changes_;  // the last ones
  std::uint64_t changes_left_out_ = 0;
  std::set<std::string> told_once_;  // of hosts that cannot be taken or done without
  std::string problem_;              // of the discovery script, the last one
};

}  // namespace lockstep::launch
