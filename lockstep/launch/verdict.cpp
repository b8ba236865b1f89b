#include "lockstep/launch/verdict.h"

#include <fmt/core.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>

#include "lockstep/base/words.h"

namespace lockstep::launch {
namespace {

constexpr int signal_base = 128;

int exit_code_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? signal_base + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

const Ending* ending_of(int rank, std::span<const Ending> endings) {
  const auto found = std::ranges::find(endings, rank, &Ending::rank);
  return found == endings.end() ? nullptr : &*found;
}

const Ending* find_culprit(std::span<const Ending> endings, const std::optional<FirstCause::Cause>& cause) {
  if (!cause) return nullptr;
  const Ending* const found = ending_of(cause->culprit, endings);
  if (found == nullptr || found->by_launcher) return nullptr;
  const bool to_blame = found->failed() || cause->code == ErrorCode::peer_lost;
  return to_blame ? found : nullptr;
}

/// Whom the others waited for until a time-out, and who would not have ended by itself.
const Ending* find_awaited(std::span<const Ending> endings, const std::optional<FirstCause::Cause>& cause) {
  if (!cause || cause->code != ErrorCode::timeout) return nullptr;
  const Ending* const found = ending_of(cause->culprit, endings);
  return found != nullptr && found->by_launcher ? found : nullptr;
}

std::string describe_awaited(const Ending& awaited) {
  return fmt::format(
      "rank {} (pid {}) {} others waited for it until a time-out, and was ended by the launcher",
      awaited.rank, awaited.pid,
      awaited.was_stopped ? "was stopped (as by SIGSTOP) while" : "did not go on while");
}

std::string describe_last_lines(const Ending& ending) {
  if (ending.last_lines.empty()) return "  it wrote nothing to stderr\n";
  std::string text = "  its last lines on stderr:\n";
  for (const std::string& line : ending.last_lines) text += "    " + line + "\n";
  return text;
}

// Whether its last lines hold `text`: it is mostly long, and would be there twice.
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
    const std::string how = !ending.lost.empty() ? ending.lost : describe(ending.wait_status);
    ranks_by_ending[ending.by_launcher ? "ended by the launcher" : how].push_back(ending.rank);
  }
  std::string text;
  for (const auto& [how, ranks] : ranks_by_ending) {
    text += fmt::format("  {}: {}\n", base::name_rank_ranges(ranks), how);
  }
  return text;
}

std::string describe_cause(const FirstCause::Cause& cause, const Ending& blamed) {
  if (cause.reporter < 0) return {};  // the launcher's own words, which stand there already
  const std::string text = shows_in_last_lines(blamed, cause.text) ? "as in the lines above" : cause.text;
  return fmt::format("  first cause, found by rank {}: {}\n", cause.reporter, text);
}

std::string describe_failure(const Ending& blamed) {
  std::string text = describe(blamed);
  if (!blamed.failed()) text += " while others still needed it";
  if (WIFSIGNALED(blamed.wait_status) && WTERMSIG(blamed.wait_status) == SIGKILL) {
    const bool is_told = !blamed.why_killed.empty();
    text +=
        "; " + (is_told ? blamed.why_killed : "if nobody did that, the system ran out of memory (see dmesg)");
  }
  return text;
}

/// A rank that was killed is found when the system has taken all of it apart; others may have noticed before, and ended.
constexpr std::uint64_t time_to_take_apart_ns = 500'000'000;

bool comes_before(const Ending& one, const Ending& other) {
  const bool is_victim = WIFSIGNALED(one.wait_status), is_other = WIFSIGNALED(other.wait_status);
  if (is_victim == is_other) return one.moment < other.moment;
  const Ending& victim = is_victim ? one : other;
  const Ending& ended = is_victim ? other : one;
  const bool is_killed = WTERMSIG(victim.wait_status) == SIGKILL && ended.ended_at_ns != 0;
  const bool is_first = victim.moment <= ended.moment ||
                        (is_killed && victim.ended_at_ns < ended.ended_at_ns + time_to_take_apart_ns);
  return is_first == is_victim;
}

}  // namespace

std::string describe(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return fmt::format("exit code {}", WEXITSTATUS(wait_status));
  const int signal = WTERMSIG(wait_status);
  const char* core = WCOREDUMP(wait_status) ? ", core dumped" : "";
  return fmt::format("killed by signal {} ({}{})", signal, base::signal_name(signal), core);
}

std::string describe(const Ending& ending) {
  if (!ending.lost.empty() && ending.pid <= 0) return fmt::format("rank {}: {}", ending.rank, ending.lost);
  if (!ending.lost.empty()) return fmt::format("rank {} (pid {}): {}", ending.rank, ending.pid, ending.lost);
  return fmt::format("rank {} (pid {}){}{}", ending.rank, ending.pid,
                     WIFSIGNALED(ending.wait_status) ? " was " : " ended with ",
                     describe(ending.wait_status));
}

const Ending* earliest_failure(std::span<const Ending> endings) {
  const Ending* earliest = nullptr;
  for (const Ending& ending : endings) {
    if (!ending.failed() || ending.by_launcher) continue;
    if (earliest == nullptr || comes_before(ending, *earliest)) earliest = &ending;
  }
  return earliest;
}

Verdict judge(std::span<const Ending> endings, const std::optional<FirstCause::Cause>& cause,
              int stopped_by) {
  if (stopped_by != 0) {
    const bool all_well =
        std::none_of(endings.begin(), endings.end(), [](const Ending& e) { return e.failed(); });
    if (all_well) return {};
    return {.exit_code = signal_base + stopped_by,
            .summary = "ended by " + base::signal_name(stopped_by) + "\n"};
  }
  // What the launcher itself said was of who had been found by then.
  const bool is_of_a_rank = cause && cause->reporter >= 0;
  const Ending* culprit = is_of_a_rank ? find_culprit(endings, cause) : nullptr;
  const Ending* failed = culprit != nullptr ? culprit : earliest_failure(endings);
  const Ending* awaited = culprit != nullptr ? nullptr : find_awaited(endings, cause);
  if (failed == nullptr && awaited == nullptr) return {};
  const Ending& blamed = awaited != nullptr ? *awaited : *failed;
  std::string summary = (awaited != nullptr ? describe_awaited(blamed) : describe_failure(blamed)) + "\n";
  summary += describe_last_lines(blamed);
  if (cause) summary += describe_cause(*cause, blamed);
  summary += describe_others(endings, blamed);
  return {.exit_code = failed != nullptr && failed->failed() ? exit_code_of(failed->wait_status) : 1,
          .rank = blamed.rank,
          .summary = summary};
}

Verdict judge_stopped(std::span<const Ending> endings, int rank, std::chrono::nanoseconds stopped_for) {
  const Ending* const found = ending_of(rank, endings);
  if (found == nullptr) return {.exit_code = 1, .rank = rank};
  return {.exit_code = 1,
          .rank = rank,
          .summary = fmt::format("rank {} (pid {}) was stopped (as by SIGSTOP) for {:.3g} s after others had "
                                 "ended with exit code 0, and was ended\n",
                                 rank, found->pid, std::chrono::duration<double>(stopped_for).count()) +
                     describe_last_lines(*found) + describe_others(endings, *found)};
}

}  // namespace lockstep::launch
