// Sees each step of every execution of this process as it is taken.
#pragma once

#include <functional>
#include <utility>

#include "lockstep/execute/execution.h"

namespace lockstep {

/// While it lives, which is outside of all calls. `seen` is called from any thread, also from several at once.
struct ExecutionWatch {
  explicit ExecutionWatch(std::function<void(const Schedule&, const Step&)> seen) : seen_(std::move(seen)) {
    Execution::watch_ = &seen_;
  }
  ~ExecutionWatch() { Execution::watch_ = nullptr; }
  ExecutionWatch(const ExecutionWatch&) = delete;
  ExecutionWatch& operator=(const ExecutionWatch&) = delete;

 private:
  std::function<void(const Schedule&, const Step&)> seen_;
};

}  // namespace lockstep
