#include "lockstep/backend/forked.h"

#include <pthread.h>

#include <atomic>

#include "lockstep/base/error.h"

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

void throw_forked(const std::string& call) {
  throw_invalid_argument(
      call +
      " in a process that was forked after lockstep::init(): only the process that called init() may use its "
      "groups; fork before init(), or start ranks with `lockstep run`");
}

}  // namespace lockstep
