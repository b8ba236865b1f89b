// The user's end of a NativeTask.
#pragma once

#include "lockstep/backend/native/native_backend.h"

namespace lockstep {

class NativeWork final : public PendingWork {
 public:
  NativeWork(std::shared_ptr<NativeBackend> backend, std::unique_ptr<NativeTask> task)
      : backend_(std::move(backend)), task_(std::move(task)) {}
  ~NativeWork() override { backend_->recycle(std::move(task_)); }

  bool poll() override {
    const auto lock = backend_->progress().lock();
    backend_->progress().advance();
    return task_->is_over();
  }
  void wait() override {
    static_cast<void>(wait_until_over(std::chrono::nanoseconds::max()));
    if (task_->state == NativeTask::State::failed) throw backend_->error_of(*task_);
  }
  bool wait_for(std::chrono::nanoseconds duration) override { return wait_until_over(duration); }
  void abandon() noexcept override { backend_->abandon(*task_); }

 private:
  bool wait_until_over(std::chrono::nanoseconds at_most) {
    return backend_->progress().wait([this] { return task_->is_over(); }, at_most);
  }

  std::shared_ptr<NativeBackend> backend_;
  std::unique_ptr<NativeTask> task_;
};

}  // namespace lockstep
