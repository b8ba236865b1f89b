#include "lockstep/backend/native/forked.h"

#include <pthread.h>

#include <atomic>

namespace lockstep {
namespace {

std::atomic<bool>& forked() {
  static std::atomic<bool> flag = false;
  return flag;
}

}  // namespace

void watch_for_forks() {
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] { forked().store(true); });
  static_cast<void>(registered);
}

bool is_forked_child() { return forked().load(std::memory_order_relaxed); }

}  // namespace lockstep
