#include "lockstep/launch/verdict.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>

#include "lockstep/topology/topology.h"

namespace lockstep::launch {
namespace {

constexpr int signal_base = 128;

int exit_code_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? signal_base + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

const Ending* find_culprit(std::span<const Ending> endings, const std::optional<FirstCause::Cause>& cause) {
  if (!cause) return nullptr;
  const auto found = std::find_if(endings.begin(), endings.end(),
                                  [&](const Ending& ending) { return ending.rank == cause->culprit; });
  if (found == endings.end() || found->by_launcher) return nullptr;
  const bool to_blame = found->failed() || cause->code == ErrorCode::peer_lost;
  return to_blame ? &*found : nullptr;
}

std::string describe_last_lines(const Ending& ending) {
  if (ending.last_lines.empty()) return "  it wrote nothing to stderr\n";
  std::string text = "  its last lines on stderr:\n";
  for (const std::string& line : ending.last_lines) text += "    " + line + "\n";
  return text;
}

// Its last lines hold `text`, which is long as a rule and would only be read twice.
bool shows_in_last_lines(const Ending& ending, const std::string& text) {
  std::string shown;
  for (const std::string& line : ending.last_lines) shown += line + "\n";
  return !text.empty() && shown.find(text) != std::string::npos;
}

// Few lines, however many ranks there are; what they wrote stands above, each line with its rank.
std::string describe_others(std::span<const Ending> endings, const Ending& blamed) {
  std::map<std::string, std::vector<int>> ranks_by_ending;
  for (const Ending& ending : endings) {
    if (&ending == &blamed) continue;
    ranks_by_ending[ending.by_launcher ? "ended by the launcher" : describe(ending.wait_status)].push_back(
        ending.rank);
  }
  std::string text;
  for (const auto& [how, ranks] : ranks_by_ending) {
    text += std::string(ranks.size() == 1 ? "  rank " : "  ranks ") + topology::to_ranges(ranks) + ": " +
            how + "\n";
  }
  return text;
}

std::string describe_cause(const FirstCause::Cause& cause, const Ending& blamed) {
  if (cause.reporter < 0) return {};  // our own words, said already
  const std::string text = shows_in_last_lines(blamed, cause.text) ? "as in the lines above" : cause.text;
  return "  first cause, found by rank " + std::to_string(cause.reporter) + ": " + text + "\n";
}

std::string describe_failure(const Ending& blamed) {
  std::string text = describe(blamed);
  if (!blamed.failed()) text += " while others still needed it";
  if (WIFSIGNALED(blamed.wait_status) && WTERMSIG(blamed.wait_status) == SIGKILL) {
    text += "; if nobody did that, the system ran out of memory (see dmesg)";
  }
  return text;
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

std::string describe(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return "exit code " + std::to_string(WEXITSTATUS(wait_status));
  const int signal = WTERMSIG(wait_status);
  const char* core = WCOREDUMP(wait_status) ? ", core dumped" : "";
  return "killed by signal " + std::to_string(signal) + " (" + signal_name(signal) + core + ")";
}

std::string describe(const Ending& ending) {
  return "rank " + std::to_string(ending.rank) + " (pid " + std::to_string(ending.pid) + ")" +
         (WIFSIGNALED(ending.wait_status) ? " was " : " ended with ") + describe(ending.wait_status);
}

const Ending* earliest_failure(std::span<const Ending> endings) {
  const Ending* earliest = nullptr;
  for (const Ending& ending : endings) {
    if (!ending.failed() || ending.by_launcher) continue;
    const bool earlier = earliest == nullptr || ending.moment < earliest->moment;
    const bool at_once = !earlier && ending.moment == earliest->moment;
    if (earlier || (at_once && WIFSIGNALED(ending.wait_status) && !WIFSIGNALED(earliest->wait_status))) {
      earliest = &ending;
    }
  }
  return earliest;
}

Verdict judge(std::span<const Ending> endings, const std::optional<FirstCause::Cause>& cause,
              int stopped_by) {
  if (stopped_by != 0) {
    const bool all_well =
        std::none_of(endings.begin(), endings.end(), [](const Ending& e) { return e.failed(); });
    if (all_well) return {};
    return {.exit_code = signal_base + stopped_by, .summary = "ended by " + signal_name(stopped_by) + "\n"};
  }
  const Ending* blamed = find_culprit(endings, cause);
  if (blamed == nullptr) blamed = earliest_failure(endings);
  if (blamed == nullptr) return {};
  std::string summary = describe_failure(*blamed) + "\n";
  summary += describe_last_lines(*blamed);
  if (cause) summary += describe_cause(*cause, *blamed);
  summary += describe_others(endings, *blamed);
  return {.exit_code = blamed->failed() ? exit_code_of(blamed->wait_status) : 1,
          .rank = blamed->rank,
          .summary = summary};
}

}  // namespace lockstep::launch
