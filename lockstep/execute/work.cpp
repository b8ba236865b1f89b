#include "lockstep/execute/work.h"

#include <exception>
#include <utility>

#include "lockstep/base/log.h"

namespace lockstep {

Work::Work(std::unique_ptr<PendingWork> pending)
    : pending_(std::move(pending)), exceptions_(std::uncaught_exceptions()) {}

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

void Work::finish() noexcept {
  if (!pending_) return;
  const auto pending = std::move(pending_);
  if (std::uncaught_exceptions() > exceptions_) {
    pending->abandon();
    return;
  }
  try {
    pending->wait();
  } catch (const std::exception& failure) {
    log::error(std::string("a work that nobody waited for failed: ") + failure.what());
  }
}

}  // namespace lockstep
