// One rank fails, and a second later all ranks have failed, most of them because of the first. The user has
// to be told which one was the first, and the exit code is that one's.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/process_costs.h"
#include "lockstep/memory/control_page.h"

namespace lockstep::launch {

/// Of a rank that is gone with its host: what `exit 1` gives.
inline constexpr int lost_status = 1 << 8;

/// How a rank ended.
struct Ending {
  int rank = 0;
  pid_t pid = 0;
  int wait_status = 0;            ///< as waitpid(2) gives it
  bool said_goodbye = false;      ///< it had left the job in an orderly way
  int worlds = 0;                 ///< in which it was: how often init() had let it in
  int moment = 0;                 ///< the same for those that the launcher found ended at the same time
  bool by_launcher = false;       ///< after the launcher had told it to
  bool was_stopped = false;       ///< when the job failed
  std::uint64_t ended_at_ns = 0;  ///< as the launcher has found, by trace::now_ns()
  base::ProcessCosts costs = {};  ///< with those of its children that it has waited for
  std::string why_killed = {};    ///< by SIGKILL, where the system tells
  std::string lost = {};          ///< nobody knows how it ended, and this is why; wait_status is lost_status
  std::vector<std::string> last_lines = {};  ///< of its stderr

  bool failed() const { return wait_status != 0; }
};

struct Verdict {
  int exit_code = 0;
  int rank = -1;             ///< who is to blame; -1: nobody, or whoever told the launcher to stop
  std::string summary = {};  ///< lines for stderr, none said twice; empty if there is nothing to explain
};

/// "killed by signal 9 (SIGKILL)", "exit code 3".
std::string describe(int wait_status);
/// "rank 1 (pid 4242) was killed by signal 9 (SIGKILL)", "rank 0 (pid 4241) ended with exit code 3".
std::string describe(const Ending& ending);

/// The one that failed first of its own accord, or nullptr. Of those found at the same moment a signal's
/// victim comes before one that ended by itself, and one that was killed also before those found a little earlier.
const Ending* earliest_failure(std::span<const Ending> endings);

/// Who is to blame: the culprit of the first cause if it ended of its own accord (with 0: it left while
/// others needed it), or whom others waited for until a time-out, whom the launcher had to end; else the earliest failure, whose is
/// the exit code then, too. `stopped_by` is the signal that told the launcher to stop
/// before anything failed, or 0.
Verdict judge(std::span<const Ending> endings, const std::optional<FirstCause::Cause>& cause, int stopped_by);

/// Where `rank` was stopped for so long that the launcher has ended it and all others that were left.
Verdict judge_stopped(std::span<const Ending> endings, int rank, std::chrono::nanoseconds stopped_for);

}  // namespace lockstep::launch
