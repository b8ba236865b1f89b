#include "completions.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <utility>

namespace lockstep_tensorflow {
namespace {

using namespace std::chrono_literals;

// A small operation whose ranks are all there is over sooner than another thread wakes up.
constexpr auto worth_waiting = 30us;
// A function's operations come one right after another. The core sends them together where nobody asks for each how it is; one that is
// alone is looked at.
constexpr auto right_after = 8us;
// Who waits for one work brings all on, and looks at the others this often.
constexpr std::int64_t wait_ms = 1;

}  // namespace

std::string why_of(int status) { return status > 0 ? lockstep_last_error() : ""; }

Completions& Completions::of_process() {
  static auto& completions = *new Completions;
  return completions;
}

void Completions::add(lockstep_work* work, std::function<void(int, const std::string&)> over) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const bool is_alone = begin - Clock::time_point(Clock::duration(last_added_)) > right_after;
  auto now = begin;
  while (is_alone && now < begin + worth_waiting) {
    const int status = lockstep_test(work);
    if (status != LOCKSTEP_PENDING) {
      over(status, why_of(status));
      last_added_ = Clock::now().time_since_epoch().count();
      return;
    }
    now = Clock::now();
  }
  last_added_ = now.time_since_epoch().count();
  const std::lock_guard lock(mutex_);
  new_.push_back({work, std::move(over)});
  if (!std::exchange(is_started_, true)) std::thread([this] { run(); }).detach();
  added_.notify_one();
}

void Completions::run() {
  // Where it shares a core with the thread that adds, it comes when that one waits, not with every operation that is added.
  const sched_param none{};
  (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (pending_.empty()) {
        while (new_.empty())
          added_.wait_until(lock, std::chrono::steady_clock::now() + std::chrono::hours(1));
      }
      std::ranges::move(new_, std::back_inserter(pending_));
      new_.clear();
    }
    if (!look()) (void)lockstep_wait(pending_.front().work, wait_ms);
  }
}

/// Whether one is over.
bool Completions::look() {
  struct Over {
    Pending one;
    int status;
    std::string why;
  };
  std::vector<Over> all;
  std::erase_if(pending_, [&](Pending& one) {
    const int status = lockstep_test(one.work);
    if (status == LOCKSTEP_PENDING) return false;
    all.push_back({std::move(one), status, why_of(status)});
    return true;
  });
  for (Over& over : all) over.one.over(over.status, over.why);
  return !all.empty();
}

}  // namespace lockstep_tensorflow
