// The user's end of a NativeTask.
#pragma once

#include <memory>

#include "lockstep/backend/native/native_task.h"
#include "lockstep/execute/progress.h"
#include "lockstep/execute/work.h"

namespace lockstep {

/// Who carries a task out: all that a work needs of its group.
class TaskOwner {
 public:
  virtual Progress& progress() = 0;
  /// Its user needs the task no more.
  virtual void recycle(std::unique_ptr<NativeTask> task) = 0;
  /// Why it failed.
  virtual Error error_of(const NativeTask& task) const = 0;
  /// See PendingWork.
  virtual void abandon(const NativeTask& task) noexcept = 0;

 protected:
  ~TaskOwner() = default;
};

class NativeWork final : public PendingWork {
 public:
  NativeWork(std::shared_ptr<TaskOwner> owner, std::unique_ptr<NativeTask> task)
      : owner_(std::move(owner)), task_(std::move(task)) {}
  ~NativeWork() override { owner_->recycle(std::move(task_)); }

  bool poll() override {
    const auto lock = owner_->progress().lock();
    owner_->progress().advance();
    return task_->is_over();
  }
  void wait() override {
    task_->is_awaited.store(true, std::memory_order_relaxed);
    static_cast<void>(wait_until_over(std::chrono::nanoseconds::max()));
    if (task_->state == NativeTask::State::failed) throw owner_->error_of(*task_);
  }
  bool wait_for(std::chrono::nanoseconds duration) override { return wait_until_over(duration); }
  void abandon() noexcept override { owner_->abandon(*task_); }

 private:
  bool wait_until_over(std::chrono::nanoseconds at_most) {
    const std::uint64_t begin_ns = trace::record_now_ns();
    task_->is_waited_for.store(true, std::memory_order_relaxed);
    const bool is_over = owner_->progress().wait([this] { return task_->is_over(); }, at_most);
    task_->is_waited_for.store(false, std::memory_order_relaxed);
    task_->blocked_ns += trace::record_now_ns() - begin_ns;
    return is_over;
  }

  std::shared_ptr<TaskOwner> owner_;
  std::unique_ptr<NativeTask> task_;
};

}  // namespace lockstep
