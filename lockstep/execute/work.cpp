#include "lockstep/execute/work.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/log.h"
#include "lockstep/execute/shut_down.h"

namespace lockstep {
namespace {

class Several final : public PendingWork {
 public:
  explicit Several(std::vector<std::unique_ptr<PendingWork>> works) : works_(std::move(works)) {}
  bool poll() override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->poll(); });
  }
  void wait() override {
    for_each([](PendingWork& work) { work.wait(); });
  }
  void synchronize() override {
    for_each([](PendingWork& work) { work.synchronize(); });
  }
  /// What is not on a GPU is waited for, unless nothing is on one.
  bool follow() override {
    std::vector<std::unique_ptr<PendingWork>> others, on_gpus;
    for (auto& work : works_) (work->follow() ? on_gpus : others).push_back(std::move(work));
    if (on_gpus.empty()) {
      works_ = std::move(others);
      return false;
    }
    works_ = std::move(on_gpus);
    for (const auto& work : others) work->wait();
    return true;
  }
  bool wait_for(std::chrono::nanoseconds duration) override {
    const Deadline deadline = Deadline::after(duration);
    return std::all_of(works_.begin(), works_.end(),
                       [&](const auto& work) { return work->wait_for(deadline.remaining()); });
  }
  void abandon() noexcept override {
    for (const auto& work : works_) work->abandon();
  }

 private:
  /// All of them, then the first failure.
  template <class Do>
  void for_each(Do wait) const {
    std::exception_ptr first;
    for (const auto& work : works_) {
      try {
        wait(*work);
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
  }

  std::vector<std::unique_ptr<PendingWork>> works_;
};

}  // namespace

Work Work::all(std::vector<Work> works) {
  std::vector<std::unique_ptr<PendingWork>> pending;
  for (Work& work : works) {
    if (work.pending_) pending.push_back(std::move(work.pending_));
  }
  return pending.empty() ? Work() : Work(std::make_unique<Several>(std::move(pending)));
}

Work::Work(std::unique_ptr<PendingWork> pending)
    : pending_(std::move(pending)), exceptions_(pending_ ? std::uncaught_exceptions() : 0) {}

Work::Work(Work&& other) noexcept : pending_(std::move(other.pending_)), exceptions_(other.exceptions_) {}

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    finish();
    pending_ = std::move(other.pending_);
    exceptions_ = other.exceptions_;
  }
  return *this;
}

Work::~Work() { finish(); }

void Work::wait() {
  if (!pending_) return;
  const auto pending = std::move(pending_);
  pending->wait();
}

void Work::follow() {
  if (pending_ && !pending_->follow()) wait();
}

void Work::synchronize() {
  if (!pending_) return;
  const auto pending = std::move(pending_);
  pending->synchronize();
}

bool Work::test() {
  if (!pending_) return true;
  if (!pending_->poll()) return false;
  wait();
  return true;
}

bool Work::wait_for(std::chrono::nanoseconds duration) {
  if (!pending_) return true;
  if (!pending_->wait_for(duration)) return false;
  wait();
  return true;
}

void Work::abandon() noexcept {
  if (const auto pending = std::move(pending_)) pending->abandon();
}

void Work::finish() noexcept {
  if (!pending_) return;
  if (std::uncaught_exceptions() > exceptions_) return abandon();
  const auto pending = std::move(pending_);
  try {
    pending->synchronize();  // the buffers may go now
  } catch (const std::exception& failure) {
    if (!is_of_shut_down(failure))
      log::error(std::string("a work that nobody waited for failed: ") + failure.what());
  }
}

}  // namespace lockstep
