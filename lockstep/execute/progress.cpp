#include "lockstep/execute/progress.h"

#include <sched.h>

#include <algorithm>

#include "lockstep/base/deadline.h"
#include "lockstep/base/start_thread.h"
#include "lockstep/base/wait_on.h"
#include "lockstep/trace/clock.h"

namespace lockstep {
namespace {

// Sockets and doorbells cannot be slept on together; with both, this is the longest that a ring goes unheard.
constexpr std::chrono::microseconds mixed_nap{500};

// Of the thread, where nothing wakes it: short beside what a message between hosts takes.
constexpr std::chrono::microseconds looking_nap{20};

// A wait that yields looks for trouble this often: where other programs want the cores each yield may take
// milliseconds, and all of them together a second.
constexpr std::chrono::milliseconds between_looks{20};

// The thread's naps where there is nothing for it to do, and how many it takes before it sleeps until it is
// called: a call costs whoever makes it some microseconds, which is too much for each of many short works.
constexpr std::chrono::microseconds idle_nap{500};
constexpr int most_idle_naps = 40;

}  // namespace

Progress::Progress(std::shared_ptr<ControlPage> page, const WaitPolicy& policy)
    : page_(std::move(page)), policy_(policy) {}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const Lock guard = lock();
    stopping_ = true;
  }
  work_arrived_.notify_all();
  thread_.join();
}

void Progress::attach(Engine& engine) {
  const Lock guard = lock();
  engines_.push_back(&engine);
}

void Progress::detach(Engine& engine) {
  const Lock guard = lock();
  std::erase(engines_, &engine);
}

void Progress::start_thread() {
  if (!thread_.joinable()) thread_ = lockstep::start_thread("lockstep-work", [this] { run_thread(); });
}

void Progress::wake_thread() {
  if (thread_sleeps_) work_arrived_.notify_all();
}

bool Progress::advance() {
  bool moved = false;
  for (Engine* engine : engines_) {
    if (!engine->is_idle()) moved = engine->advance() || moved;
  }
  return moved;
}

void Progress::poll() {
  const Lock guard = lock();
  advance();
}

bool Progress::wait(const std::function<bool()>& is_over, std::chrono::nanoseconds at_most) {
  ++waiting_;
  const bool is_done = drive_until(is_over, at_most);
  // Then the thread goes on with what is left.
  if (--waiting_ == 0 && is_relieved_ && thread_.joinable()) {
    const Lock guard = lock();
    if (has_work()) {
      is_relieved_ = false;
      work_arrived_.notify_all();
    }
  }
  return is_done;
}

bool Progress::has_work() const {
  return !std::all_of(engines_.begin(), engines_.end(),
                      [](const Engine* engine) { return engine->is_idle(); });
}

bool Progress::wants_looks() const {
  return std::any_of(engines_.begin(), engines_.end(),
                     [](const Engine* engine) { return !engine->is_idle() && engine->wants_looks(); });
}

bool Progress::drive_until(const std::function<bool()>& is_over, std::chrono::nanoseconds at_most) {
  const bool is_bounded = at_most != std::chrono::nanoseconds::max();  // who is not, spins without a clock
  const Deadline deadline = is_bounded ? Deadline::after(at_most) : Deadline::never();
  const bool has_own_core = policy_.spins > 0;  // else a yield would take from the others' computing
  Backoff backoff(policy_);
  int idle_steps = 0;
  Deadline next_look = Deadline::never();
  while (true) {
    bool moved = false, nothing_wakes = false;
    {
      const Lock guard = lock();
      moved = advance();
      if (is_over()) return true;
      nothing_wakes = has_own_core && idle_steps >= policy_.spins && wants_looks();
    }
    if (moved) {
      backoff.restart();
      idle_steps = 0;
    } else if (idle_steps <= policy_.spins && idle_steps++ == policy_.spins) {
      next_look = Deadline::after(between_looks);
    }
    const bool is_late = deadline.expired();
    bool is_long = !moved && backoff.step();
    if (is_long &&
        nothing_wakes) {  // as an MPI's own waits, which send and receive meanwhile; a nap would keep its messages
      ::sched_yield();
      is_long = false;
    }
    const bool is_look_due = idle_steps > policy_.spins && next_look.expired();
    if (is_long || is_late || is_look_due) {
      look();
      next_look = Deadline::after(between_looks);
    }
    if (is_late) return false;
    if (is_long) sleep(std::min<std::chrono::nanoseconds>(policy_.nap, deadline.remaining()));
  }
}

void Progress::look() {
  const Lock guard = lock();
  for (Engine* engine : engines_) {
    if (!engine->is_idle()) engine->look();
  }
}

void Progress::sleep(std::chrono::nanoseconds at_most) {
  std::vector<pollfd> descriptors;
  const std::uint32_t ticket = page_->doorbell().prepare();
  {
    const Lock guard = lock();
    if (advance() || at_most <= std::chrono::nanoseconds(0)) {
      page_->doorbell().cancel();
      return;
    }
    for (Engine* engine : engines_) {
      if (!engine->is_idle()) engine->add_wait_descriptors(descriptors);
    }
    if (wants_looks()) at_most = std::min<std::chrono::nanoseconds>(at_most, looking_nap);
  }
  if (descriptors.empty()) {
    page_->doorbell().sleep(ticket, at_most);
  } else {
    page_->doorbell().cancel();
    sleep_on_descriptors(descriptors, at_most);
  }
  slept_until_ns_.store(trace::record_now_ns(), std::memory_order_relaxed);
}

void Progress::sleep_on_descriptors(std::vector<pollfd>& descriptors,
                                    std::chrono::nanoseconds at_most) const {
  const auto limit = std::chrono::duration_cast<std::chrono::nanoseconds>(
      page_->local_ranks() > 1 ? std::min<std::chrono::nanoseconds>(at_most, mixed_nap) : at_most);
  const timespec time{limit.count() / 1'000'000'000, limit.count() % 1'000'000'000};
  ::ppoll(descriptors.data(), descriptors.size(), &time, nullptr);
}

void Progress::run_thread() {
  int idle_naps = 0;
  while (true) {
    {
      Lock guard = lock();
      const auto is_called = [&] { return stopping_ || has_work(); };
      if (is_called()) {
        idle_naps = 0;
      } else if (++idle_naps > most_idle_naps) {
        thread_sleeps_ = true;
        base::wait_on(work_arrived_, guard, is_called);
        thread_sleeps_ = false;
      }
      if (stopping_) return;
      if (waiting_ > 0) {
        is_relieved_ = true;
        work_arrived_.wait_for(guard, policy_.nap, [&] { return stopping_ || !is_relieved_; });
        is_relieved_ = false;
        continue;
      }
      if (!has_work()) {
        work_arrived_.wait_for(guard, idle_nap, [&] { return stopping_; });
        continue;
      }
      advance();
    }
    look();
    sleep(policy_.nap);
  }
}

}  // namespace lockstep
