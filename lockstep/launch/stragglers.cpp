#include "lockstep/launch/stragglers.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/words.h"
#include "lockstep/group/group.h"

namespace lockstep::launch {
namespace {

double seconds(std::chrono::nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

std::string have_ended(std::span<const int> ended) {
  return fmt::format("{} {} ended with exit code 0", base::name_rank_ranges(ended),
                     ended.size() == 1 ? "has" : "have");
}

}  // namespace

StragglerLimits StragglerLimits::from_environment() {
  const auto options = GroupOptions::from_environment();
  StragglerLimits limits;
  limits.runs_on = options.warn_after;
  limits.given_up = options.timeout;
  return limits;
}

std::string Stragglers::look(std::span<const int> ended, std::span<const Straggler> left, Time now) {
  if (ended.size() != ended_) {
    ended_ = ended.size();
    last_end_ = now;
  }
  std::string text;
  std::optional<GivenUp> longest;
  bool are_all_stopped = !left.empty();
  std::vector<int> running;
  for (const Straggler& one : left) {
    if (!one.is_stopped) {
      stopped_.erase(one.rank);
      running.push_back(one.rank);
      are_all_stopped = false;
      continue;
    }
    const auto since = now - stopped_.try_emplace(one.rank, Stopped{.seen = now}).first->second.seen;
    are_all_stopped &= since >= limits_.given_up;
    if (!longest || since > longest->since) longest = {one, since};
    text += tell_stopped(one, ended, now);
  }
  given_up_ = are_all_stopped ? longest : std::nullopt;
  if (!running.empty() && !are_told_ && now - last_end_ >= limits_.runs_on) {
    are_told_ = true;
    text += fmt::format("{} still run{}, {:.3g} s after {}\n", base::name_rank_ranges(running),
                        running.size() == 1 ? "s" : "", seconds(now - last_end_), have_ended(ended));
  }
  return text;
}

std::string Stragglers::tell_stopped(const Straggler& one, std::span<const int> ended, Time now) {
  Stopped& stopped = stopped_.at(one.rank);
  if (stopped.is_told || now - stopped.seen < limits_.is_stopped) return {};
  stopped.is_told = true;
  const bool has_end = limits_.given_up != std::chrono::nanoseconds::max();
  return fmt::format(
      "rank {} (pid {}) has been stopped (as by SIGSTOP) for {:.3g} s, and {}; `kill -CONT {}` "
      "lets it go on{}\n",
      one.rank, one.pid, seconds(now - stopped.seen), have_ended(ended), one.pid,
      has_end ? fmt::format("; after {:g} s (LOCKSTEP_TIMEOUT) it is ended", seconds(limits_.given_up)) : "");
}

void Stragglers::forget() {
  ended_ = 0;
  stopped_.clear();
  given_up_.reset();
}

}  // namespace lockstep::launch
