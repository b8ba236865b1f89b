#include "completions.h"

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
// Between looks at works that go on, the longer they do; then one of them is waited for, which finds ranks that have died or do not
// come.
constexpr auto shortest_nap = 20us, longest_nap = 500us;
constexpr std::int64_t wait_ms = 1;

std::string why_of(int status) { return status > 0 ? lockstep_last_error() : ""; }

}  // namespace

Completions& Completions::of_process() {
  static auto& completions = *new Completions;
  return completions;
}

void Completions::add(lockstep_work* work, std::function<void(int, const std::string&)> over) {
  const auto until = std::chrono::steady_clock::now() + worth_waiting;
  do {
    const int status = lockstep_test(work);
    if (status != LOCKSTEP_PENDING) return over(status, why_of(status));
  } while (std::chrono::steady_clock::now() < until);
  const std::lock_guard lock(mutex_);
  new_.push_back({work, std::move(over)});
  if (!std::exchange(is_started_, true)) std::thread([this] { run(); }).detach();
  added_.notify_one();
}

void Completions::run() {
  auto nap = std::chrono::microseconds(shortest_nap);
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
    if (look()) {
      nap = shortest_nap;
    } else if (nap < longest_nap) {
      std::this_thread::sleep_for(nap);
      nap *= 2;
    } else {
      (void)lockstep_wait(pending_[next_++ % pending_.size()].work, wait_ms);
    }
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
