// A job is more than its processes: they must know one another, share the host's cores, speak without
// garbling each other's lines, end together, and leave nothing behind. run() is what `lockstep run` does.
//
// Three kinds of processes: the guard (the one that was called: takes signals, outlives the rest, holds
// nothing that could fail), the job (starts the ranks, passes their output on, decides who failed first) and
// the ranks. Guard and job watch each other, and each ends everything below it when the other is gone, also
// after kill -9. On several hosts each has an agent, which is a guard and a job of its own, and does for its ranks what
// the launcher's job tells it, or ends them when that is gone (agents/).
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/secret.h"
#include "lockstep/base/socket.h"
#include "lockstep/launch/hosts/discovery.h"
#include "lockstep/launch/hosts/host_list.h"
#include "lockstep/launch/output/output_options.h"
#include "lockstep/launch/roles.h"
#include "lockstep/launch/stragglers.h"
#include "lockstep/launch/verdict.h"
#include "lockstep/view/profile/profile_options.h"
#include "lockstep/view/profile/timeline_names.h"

namespace lockstep::launch {

inline constexpr int most_ranks = 4096;

/// How a job gets to other hosts.
struct RemoteOptions {
  /// Words of a remote shell's command, before the host: "ssh", "-p", "2222"; empty: ssh.
  std::vector<std::string> shell = {};
  bool by_srun = false;     ///< in place of it: inside an allocation of Slurm
  std::string agent = {};   ///< path of `lockstep` there; empty: this process's
  std::string folder = {};  ///< where ranks begin; empty: this process's
  /// Set in ranks, beside what this process has and other hosts can use.
  std::vector<std::pair<std::string, std::string>> variables = {};
  std::chrono::milliseconds start_timeout{30000};  ///< for all hosts to be ready
  /// So many hosts are reached by ssh from here, those after them by way of these; see agents/host_tree.h.
  std::size_t tree_width = 32;
};

/// Launchers that somebody else has started on each host, as torchrun's are: they meet at an address of the first one, and
/// each starts ranks of its own program there.
struct NodeOptions {
  int least = 1;  ///< hosts; with `most` it starts at once,
  int most = 1;
  std::chrono::milliseconds last_call{30000};  ///< or so long after `least` are there
  std::optional<int> rank = {};                ///< of this host; nullopt: as they come
  bool leads = true;                           ///< the others come to this one
  bool may_follow = false;                     ///< unless another one on this host does
  Endpoint meeting = {};                       ///< the same text for all
  std::string id = {};                         ///< of the run; others' launchers do not mix with them
  std::optional<Secret> secret = {};           ///< never nullopt where there are several
};

struct RunOptions {
  int ranks = 0;  ///< 1 to most_ranks
  /// Where, and how many on each, which make up `ranks`; empty: all on this host.
  std::vector<Host> hosts = {};
  RemoteOptions remote = {};
  /// Where this is one of several launchers: `ranks` are this host's then, and `hosts` is empty.
  std::optional<NodeOptions> nodes = {};
  std::vector<std::string> command = {};  ///< program and arguments; a name without '/' is looked for in PATH
  /// In place of a command: what each rank does, in a copy of this process, and its exit code.
  std::function<int(int rank)> function = {};
  std::vector<int> inherited =
      {};  ///< descriptors that stay open in such ranks, besides stdin, stdout and stderr
  /// Takes what else stderr would be told of a failure; called in another process than run() is.
  std::function<void(const Verdict&)> on_failure = {};
  bool pin = true;  ///< give each rank its own cores, where there are enough
  OutputOptions output = {};
  bool nested = false;   ///< also inside a rank of another run
  int max_restarts = 0;  ///< how often all ranks are started again after one has failed
  /// They make up `ranks`; empty: one, without a name.
  std::vector<Role> roles = {};
  /// Who is asked from time to time which hosts there are; the job begins with so many ranks of each of `hosts` (of this one), and the
  /// rest of `ranks` wait for slots. REQUIRES: ranks that may die.
  std::optional<DiscoveryOptions> discovery = {};
  std::vector<int> begins = {};
  int least_ranks = 1;  ///< where roles have ranks that may die: with fewer left the job ends
  /// There: when a rank has ended with 0 all is done, and who has been started again and is not yet with the others is ended.
  bool ends_together = false;
  /// Where a job that failed leaves its flight record, in a folder of its own; nowhere if empty.
  std::string record_dir = {};
  std::string timeline = {};  ///< file for what all ranks did when; nowhere if empty
  view::TimelineNames timeline_names = view::TimelineNames::lockstep;  ///< of its events
  view::ProfileOptions profile = {};  ///< written at the end, however it comes; not where its folder is empty
  std::string report = {};            ///< folder for a report, written likewise; nowhere if empty
  int master_port = 0;                ///< for programs that read MASTER_PORT; 0: one that is free
  std::optional<Endpoint> metrics = {};  ///< where all ranks' numbers are served while they run, by HTTP
  /// When ranks of a job that stands still are named, as by a rank that waits so long; nanoseconds::max(): never.
  std::chrono::nanoseconds explain_after = std::chrono::seconds(60);
  /// What survivors of a failure have to report it themselves before they get SIGTERM.
  std::chrono::milliseconds report_grace{1500};
  std::chrono::milliseconds terminate_grace{300};  ///< from that SIGTERM to SIGKILL
  /// What ranks have to end after a signal to the launcher, before SIGKILL.
  std::chrono::milliseconds stop_grace{2000};
  /// What processes that a rank leaves behind have to end by themselves (such as tee), after the last rank.
  std::chrono::milliseconds leftover_grace{500};
  /// When ranks that are left after others have ended with 0 are named, and when stopped ones are ended.
  StragglerLimits stragglers = {};
  /// After a signal to the launcher its own process may take stop_grace for the ranks, again for its output,
  /// and this on top; a launcher that is stuck is then killed, and all with it.
  std::chrono::milliseconds guard_grace{6000};
};

/// Whether the job goes on, or a rank is started again by itself, when some rank dies.
inline bool survives_deaths(const RunOptions& options) {
  return std::ranges::any_of(options.roles,
                             [](const Role& role) { return role.is_tolerated || role.restarts > 0; });
}
/// All roles, each with its command: the one without a name where there are none.
std::vector<Role> roles_of(const RunOptions& options);
/// Whether what the ranks did is read at the end.
inline bool wants_record(const RunOptions& options) {
  return !options.record_dir.empty() || !options.profile.folder.empty() || !options.timeline.empty() ||
         !options.report.empty();
}
/// Whether all that ranks record is read while they run.
inline bool keeps_timeline(const RunOptions& options) {
  return !options.timeline.empty() || !options.report.empty();
}

/// The folder for RunOptions::record_dir: `wish`, LOCKSTEP_RECORD_DIR or lockstep-records; none of them for
/// "none".
std::string record_dir(const std::optional<std::string>& wish);

/// LOCKSTEP_TIMELINE, or HOROVOD_TIMELINE; empty: neither is set.
std::string timeline_file();

/// Runs the job to its end; complaints and the summary of a failure go to stderr. Returns the exit code: 0;
/// that of the rank that failed first (128 + signal where a signal killed it, 1 where it left early with 0, or
/// was stopped until it was given up), in the last of all restarts;
/// 128 + signal if the launcher was told to stop; 2 for options that cannot work, 126 or 127 for a program
/// that cannot run; 1 if the system refused something, be it to take the ranks' output. REQUIRES: one thread,
/// and no other children. Takes over SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP and SIGCONT
/// (but for those that are ignored already), and makes this process the reaper of orphaned descendants.
int run(const RunOptions& options);

}  // namespace lockstep::launch
