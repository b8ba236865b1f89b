// One job from its first rank to its last word: an event loop in one thread, beside the thread of the job's
// store.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"
#include "lockstep/launch/environment.h"
#include "lockstep/launch/flight_recorder.h"
#include "lockstep/launch/guard.h"
#include "lockstep/launch/output.h"
#include "lockstep/launch/placement.h"
#include "lockstep/launch/run.h"
#include "lockstep/launch/stop_orders.h"
#include "lockstep/launch/stragglers.h"
#include "lockstep/launch/terminal_input.h"
#include "lockstep/launch/verdict.h"
#include "lockstep/memory/control_page.h"
#include "lockstep/rendezvous/store_server.h"

namespace lockstep::launch {

struct JobPlan {
  RunOptions options = {};
  std::string program = {};  ///< path of options.command's program
  Placement placement = {};
};

class Job {
 public:
  /// Makes what the ranks share. Throws Error{system}.
  Job(JobPlan plan, GuardLine guard);

  /// Starts the ranks, waits for the end, kills what they left behind, and returns the exit code.
  /// Throws Error{system} if a rank cannot be started; those that were are the caller's to kill.
  int run();

 private:
  struct Rank {
    pid_t pid = 0;
    bool running = false;
  };

  JobFacts make_facts() const;
  void start_rank(int rank);
  void wait_for_events(Deadline deadline);
  void take_orders();
  void take_order(int signal);
  void reap();
  void note_failure();
  void escalate();
  void look_at_stragglers();
  std::vector<Straggler> stragglers() const;
  void give_up(const Stragglers::GivenUp& given_up);
  void wait_for_leftovers();
  void write_remaining_output();
  void leave_flight_record(const Verdict& verdict);
  Deadline next_step() const;
  bool any_running() const;
  void signal_ranks(int signal, bool whole_family);
  std::vector<pid_t> pids() const;

  JobPlan plan_;
  GuardLine guard_;
  UniqueFd child_events_;  // signalfd of SIGCHLD
  Secret secret_;
  UniqueFd secret_fd_;
  ControlPage page_;
  std::string name_;
  Listener store_listener_;  // ranks wait there until the store is served
  std::optional<StoreServer>
      store_;  // from when all ranks have been started: it has a thread, which no fork bears
  JobFacts facts_;
  FlightRecorder flight_;
  RankOutput output_;
  TerminalInput terminal_;

  std::vector<Rank> ranks_;
  std::vector<Ending> endings_;
  int moment_ = 0;
  bool guard_gone_ = false;
  StopOrders stop_;            // after a second Ctrl-C, output that nobody reads is dropped
  bool failed_ = false;        // a rank has failed
  bool failed_first_ = false;  // before any signal to stop
  bool told_ = false;          // ranks have been told to end by us
  Stragglers stragglers_;
  bool suspended_ = false;  // by Ctrl-Z
  Deadline look_at_ = Deadline::never();
  std::optional<Stragglers::GivenUp> given_up_;
  Deadline terminate_at_ = Deadline::never();
  Deadline kill_at_ = Deadline::never();
};

}  // namespace lockstep::launch
