// A thread that runs functions one after another: for what may wait for others where its caller may not.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include "lockstep/base/background_thread.h"
#include "lockstep/base/wait_on.h"

namespace lockstep {

/// Thread safety: all. Not of use in a forked process.
class InOrderThread {
 public:
  /// `name` has at most 15 characters. Throws Error{system}.
  explicit InOrderThread(const char* name) : thread_(name, [state = state_.get()] { serve(*state); }) {}
  /// Runs what it was given, and ends.
  ~InOrderThread() {
    if (!thread_.runs_here()) {
      (void)state_.release();  // a condition with a waiter, which is not here, cannot be destroyed
      return;
    }
    const std::lock_guard lock(state_->mutex);
    state_->stops = true;
    state_->changed.notify_all();
  }
  InOrderThread(const InOrderThread&) = delete;
  InOrderThread& operator=(const InOrderThread&) = delete;

  /// `function` runs after those before it; its result, or what it throws. It is destroyed in the thread.
  template <class Function>
  std::future<std::invoke_result_t<Function&>> run(Function function) {
    auto task = std::make_shared<std::packaged_task<std::invoke_result_t<Function&>()>>(std::move(function));
    auto result = task->get_future();
    const std::lock_guard lock(state_->mutex);
    state_->waiting.push_back([task = std::move(task)] { (*task)(); });
    state_->changed.notify_all();
    return result;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> waiting;
    bool stops = false;
  };

  static void serve(State& state) {
    std::unique_lock lock(state.mutex);
    while (true) {
      base::wait_on(state.changed, lock, [&] { return state.stops || !state.waiting.empty(); });
      if (state.waiting.empty()) return;
      auto next = std::move(state.waiting.front());
      state.waiting.pop_front();
      lock.unlock();
      next();
      next = nullptr;
      lock.lock();
    }
  }

  std::unique_ptr<State> state_ = std::make_unique<State>();
  BackgroundThread thread_;  // the last one: it uses the other
};

}  // namespace lockstep
