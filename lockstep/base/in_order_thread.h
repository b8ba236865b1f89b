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
  explicit InOrderThread(const char* name) : thread_(name, [this] { serve(); }) {}
  /// Runs what it was given, and ends.
  ~InOrderThread() {
    if (!thread_.runs_here()) return;
    const std::lock_guard lock(mutex_);
    stops_ = true;
    changed_.notify_all();
  }
  InOrderThread(const InOrderThread&) = delete;
  InOrderThread& operator=(const InOrderThread&) = delete;

  /// `function` runs after those before it; its result, or what it throws. It is destroyed in the thread.
  template <class Function>
  std::future<std::invoke_result_t<Function&>> run(Function function) {
    auto task = std::make_shared<std::packaged_task<std::invoke_result_t<Function&>()>>(std::move(function));
    auto result = task->get_future();
    const std::lock_guard lock(mutex_);
    waiting_.push_back([task = std::move(task)] { (*task)(); });
    changed_.notify_all();
    return result;
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      base::wait_on(changed_, lock, [this] { return stops_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      auto next = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      next();
      next = nullptr;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool stops_ = false;
  BackgroundThread thread_;  // the last one: it uses the others
};

}  // namespace lockstep
