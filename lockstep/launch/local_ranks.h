// The ranks of this host: their processes, the control page that they share with us, and their output.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/socket.h"
#include "lockstep/launch/child.h"
#include "lockstep/launch/environment.h"
#include "lockstep/launch/host_ranks.h"
#include "lockstep/launch/oom_watch.h"
#include "lockstep/launch/output/rank_pipes.h"
#include "lockstep/launch/placement.h"
#include "lockstep/rendezvous/store_server.h"
#include "lockstep/view/profile/timeline_spool.h"

namespace lockstep::launch {

struct LocalPlan {
  std::vector<RankPlace> places = {};          ///< of the ranks here, in ascending order
  JobFacts facts = {};                         ///< without descriptors
  std::vector<Role> roles = {};                ///< of the job, each with its program and arguments
  std::vector<std::string> programs = {};      ///< paths of these programs, by role
  std::function<int(int rank)> function = {};  ///< in place of them, as RunOptions has it
  std::vector<int> inherited = {};             ///< open in ranks that are functions
  Variables environment = {};  ///< beside what is inherited, below what tells a rank its place
  std::string folder = {};     ///< that ranks begin in; empty: this process's
  Placement placement = {};
  std::optional<int> begins =
      {};  ///< so many of them are started at the beginning, the others by start_again(); nullopt: all
  bool keeps_timeline = false;
  sigset_t signal_mask = {};  ///< as ranks should have it
};

class LocalRanks final : public HostRanks {
 public:
  /// Makes what the ranks share. Borrows `output`. Throws Error{system}.
  LocalRanks(LocalPlan plan, const Secret& secret, OutputTaker& output);

  /// Starts those that begin. `input` becomes rank 0's stdin, if rank 0 is here and it is valid; else that is our own. All
  /// others read nothing. Throws Error{system}, CannotExecute; those that were started are the caller's to kill.
  void start(UniqueFd input);
  /// The job's store, where this host is to have it; ranks may wait at the listener before. It has a thread, which no fork
  /// bears: REQUIRES that all ranks have been started.
  void serve_store(Listener listener, const Secret& secret);

  /// Processes as they were started, in the order of local ranks.
  std::vector<pid_t> pids() const;

  void watch(PollSet& poll) override;
  Deadline wake_at() const override;
  std::vector<Ending> take_endings() override;
  bool any_running() const override;
  std::optional<FirstCause::Cause> first_cause() const override { return page_.first_cause().get(); }
  void signal(int signal, bool whole_family, std::optional<int> rank) override;
  void tell(const FirstCause::Cause& cause) override;
  void call_off_world(int number, const Error& absent) override;
  void forget_cause(const std::string& text) override;
  void note_failure() override;
  std::vector<Straggler> stragglers() override;
  void publish(const ViewNews& news) override;
  void start_again(const Life& life) override;
  void end_latecomers() override;
  bool can_start() const override { return true; }
  bool has_rank(int rank) const override;
  std::vector<Life> take_arrivals() override;
  std::optional<view::LiveHost> look_live() override;
  void finish(std::chrono::milliseconds grace) override;
  bool is_finished() const override { return left_behind_.has_value(); }
  int left_behind() const override { return left_behind_.value_or(0); }
  std::optional<trace::FlightRecord> record() const override;
  std::vector<view::RankTimeline> take_timeline() override;

 private:
  struct Process {
    pid_t pid = 0;
    bool running = false;
    int incarnation = 0;
    bool has_come = true;      ///< of an incarnation that was started again
    std::string why_not = {};  ///< it could not be started again, which is its end
  };

  void start_rank(std::size_t local_rank, int input, int incarnation = 0);
  std::size_t index_of(int rank) const;
  const std::shared_ptr<Store>& client();
  void reap();
  void end_those_not_started();
  void end_leftovers();

  LocalPlan plan_;
  UniqueFd child_events_;  // signalfd of SIGCHLD
  UniqueFd secret_fd_;
  ControlPage page_;
  std::optional<view::TimelineSpool> timeline_;
  std::optional<view::LiveReader> live_;
  RankPipes pipes_;
  std::optional<StoreServer> store_;
  Trust trust_;                    // of it
  std::shared_ptr<Store> client_;  // of it, once there is something to say
  std::vector<Process> processes_;
  OomWatch oom_;
  std::vector<Ending> endings_;  // that were not taken
  std::uint64_t failed_at_ns_ = 0;
  std::vector<trace::ProcessState> states_;  // then, by local rank
  std::optional<Deadline> leftovers_until_;
  std::optional<int> left_behind_;
};

}  // namespace lockstep::launch
