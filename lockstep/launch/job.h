// One job from its first rank to its last word: an event loop in one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/launch/guard.h"
#include "lockstep/launch/host_ranks.h"
#include "lockstep/launch/metrics_server.h"
#include "lockstep/launch/output/rank_output.h"
#include "lockstep/launch/run.h"
#include "lockstep/launch/standstill.h"
#include "lockstep/launch/stop_orders.h"
#include "lockstep/launch/stragglers.h"
#include "lockstep/launch/survivors.h"
#include "lockstep/launch/terminal_input.h"
#include "lockstep/launch/verdict.h"
#include "lockstep/memory/control_page.h"
#include "lockstep/view/profile/timeline.h"

namespace lockstep::launch {

/// One of the jobs of a run that starts its ranks again when one has failed.
struct Attempt {
  std::string job = {};              ///< its random name, also of its flight record's folder
  std::string run = {};              ///< the same for all of them, with the name of the first one's job
  int restarts = 0;                  ///< that were before it
  std::string first_failure = {};    ///< of the first attempt
  std::string previous_job = {};     ///< of the attempt before
  MetricsServer* metrics = nullptr;  ///< of all attempts; borrowed
};

struct JobEnd {
  int exit_code = 0;
  std::string failure = {};  ///< what failed, in a line; "": nothing, or somebody had told the job to end
  bool again = false;        ///< all ranks are to start again
};

class Job {
 public:
  using Hosts = std::vector<std::unique_ptr<HostRanks>>;

  /// `hosts`: their ranks have been started. Borrows the rest.
  Job(const RunOptions& options, Attempt attempt, GuardLine& guard, RankOutput& output,
      TerminalInput& terminal, Hosts hosts);

  /// Waits for the end, and kills what ranks left behind.
  JobEnd run();

 private:
  void wait_for_events(Deadline deadline);
  void take_orders();
  void take_order(int signal);
  void look_around();
  bool goes_on() const;
  void reap();
  void note_failure();
  void escalate();
  void look_at_stragglers();
  void end_stopped(int rank);
  bool wants_live() const;
  void look_live();
  void tell_standstill(std::vector<view::LiveHost> hosts);
  void finish_hosts();
  void write_remaining_output();
  void leave_records(const Verdict& verdict);
  view::Timeline take_timeline(const trace::FlightRecord& record);
  /// Of an attempt that is not the first, whose files are the ones to look at: `name` with its number before `ending`.
  std::string of_attempt(const std::string& name, const std::string& ending) const;
  /// What to say of it, in lines, where restarts are wished.
  std::string whether_again(const JobEnd& end) const;
  void conclude_hosts(int exit_code, const std::string& summary, bool again);
  Verdict verdict();
  Deadline next_step() const;
  bool any_running() const;
  void signal_ranks(int signal, bool whole_family);
  void tell_absent(const Ending& ending);
  void note_cause();
  void tell_ranks(const FirstCause::Cause& cause);

  const RunOptions& options_;
  Attempt attempt_;
  GuardLine& guard_;
  RankOutput& output_;
  TerminalInput& terminal_;
  Hosts hosts_;

  std::vector<Ending> endings_;  // but for those that the job survives
  std::optional<Survivors> survivors_;
  std::optional<Discovery> discovery_;
  int moment_ = 0;
  std::optional<FirstCause::Cause> cause_;
  bool guard_gone_ = false;
  StopOrders stop_;            // after a second Ctrl-C, output that nobody reads is dropped
  bool failed_ = false;        // a rank has failed
  bool failed_first_ = false;  // before any signal to stop
  bool told_ = false;          // ranks have been told to end by us
  Stragglers stragglers_;
  bool suspended_ = false;  // by Ctrl-Z
  Deadline look_at_ = Deadline::never();
  std::optional<Stragglers::GivenUp> given_up_;
  Standstill standstill_;
  bool is_standstill_ = false;  // which is told after one more look
  Deadline live_at_;
  Deadline terminate_at_ = Deadline::never();
  Deadline kill_at_ = Deadline::never();
};

}  // namespace lockstep::launch
