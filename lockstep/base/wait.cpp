#include "lockstep/base/wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace lockstep {

void Doorbell::ring() {
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  generation_.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &generation_, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

std::uint32_t Doorbell::prepare() {
  const std::uint32_t ticket = generation_.load(std::memory_order_seq_cst);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  return ticket;
}

void Doorbell::sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec limit{seconds.count(), (at_most - seconds).count()};
  ::syscall(SYS_futex, &generation_, FUTEX_WAIT, ticket, &limit, nullptr, 0);
  cancel();
}

void Doorbell::cancel() { sleepers_.fetch_sub(1, std::memory_order_seq_cst); }

WaitPolicy WaitPolicy::for_ranks_per_core(double ranks_per_core) {
  WaitPolicy policy;
  if (ranks_per_core > 1.0) policy.spins = 0;
  return policy;
}

void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool Backoff::step() {
  if (count_ > policy_.spins + policy_.yields) return true;
  ++count_;
  if (count_ <= policy_.spins) {
    spin_pause();
    return false;
  }
  if (count_ <= policy_.spins + policy_.yields) {
    ::sched_yield();
    return false;
  }
  return true;
}

}  // namespace lockstep
