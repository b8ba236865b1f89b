#include "lockstep/kernel/copy.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "lockstep/kernel/own_line.h"

#ifndef LOCKSTEP_KERNEL_COPY_TURNS
#define LOCKSTEP_KERNEL_COPY_TURNS
namespace lockstep::kernel {
namespace {

constexpr std::size_t turn_bytes = 4 * kernel::line_bytes;
constexpr std::size_t ahead_bytes = 32 * kernel::line_bytes;

}  // namespace
}  // namespace lockstep::kernel
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/kernel/copy.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // includes this file again, once for each target
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernel::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE void copy_turn(std::byte* destination, const std::byte* source) {
  const hn::ScalableTag<std::uint8_t> d;
  for (std::size_t i = 0; i < turn_bytes; i += hn::Lanes(d)) {
    hn::StoreU(hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(source + i)), d,
               reinterpret_cast<std::uint8_t*>(destination + i));
  }
}

HWY_INLINE void own_turn(std::byte* destination) {
  for (std::size_t i = 0; i < turn_bytes; i += kernel::line_bytes) kernel::own_line(destination + i);
}

// `bytes` is a multiple of turn_bytes.
void copy_both_on_target(const CopyTask& one, const CopyTask& other, std::size_t bytes) {
  const std::size_t ahead = std::min(ahead_bytes, bytes);
  for (std::size_t i = 0; i < ahead; i += turn_bytes) {
    own_turn(one.destination + i);
    own_turn(other.destination + i);
  }
  std::size_t i = 0;
  for (; i + ahead < bytes; i += turn_bytes) {
    own_turn(one.destination + i + ahead);
    own_turn(other.destination + i + ahead);
    copy_turn(one.destination + i, one.source + i);
    copy_turn(other.destination + i, other.source + i);
  }
  for (; i < bytes; i += turn_bytes) {
    copy_turn(one.destination + i, one.source + i);
    copy_turn(other.destination + i, other.source + i);
  }
}

// Whole lines of `destination`.
void stream_on_target(std::byte* destination, const std::byte* source, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  for (std::size_t i = 0; i < bytes; i += hn::Lanes(d)) {
    hn::Stream(hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(source + i)), d,
               reinterpret_cast<std::uint8_t*>(destination + i));
  }
  hwy::FlushStream();
}

}  // namespace
}  // namespace lockstep::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernel {
namespace {

HWY_EXPORT(copy_both_on_target);
HWY_EXPORT(stream_on_target);

void copy_rest(const CopyTask& task, std::size_t begin) {
  if (begin < task.bytes) std::memcpy(task.destination + begin, task.source + begin, task.bytes - begin);
}

bool is_amd_processor() {
#if defined(__x86_64__)
  static const bool is_amd = [] {
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") != 0;
  }();
  return is_amd;
#else
  return false;
#endif
}

bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b, std::size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

void copy_both(const CopyTask& one, const CopyTask& other) {
  const std::size_t together = std::min(one.bytes, other.bytes) / turn_bytes * turn_bytes;
  if (together > 0) HWY_DYNAMIC_DISPATCH(copy_both_on_target)(one, other, together);
  copy_rest(one, together);
  copy_rest(other, together);
}

void copy_past_caches(std::byte* destination, const std::byte* source, std::size_t bytes) {
  const auto place = reinterpret_cast<std::uintptr_t>(destination);
  const std::size_t before =
      std::min(bytes, (kernel::line_bytes - place % kernel::line_bytes) % kernel::line_bytes);
  const std::size_t whole = (bytes - before) / kernel::line_bytes * kernel::line_bytes;
  std::memcpy(destination, source, before);
  HWY_DYNAMIC_DISPATCH(stream_on_target)(destination + before, source + before, whole);
  copy_rest({destination, source, bytes}, before + whole);
}

CrossingCopies::CrossingCopies() : CrossingCopies(is_amd_processor()) {}

bool CrossingCopies::next_goes_past_caches(std::size_t bytes) {
  if (plain_until_next_ == 0 || bytes < least_bytes) return false;
  return bytes < least_told_bytes || --plain_until_next_ > 0;
}

void CrossingCopies::copy(std::byte* destination, const std::byte* source, std::size_t bytes) {
  if (next_goes_past_caches(bytes)) {
    copy_past_caches(destination, source, bytes);
    return;
  }
  using Clock = std::chrono::steady_clock;
  const bool is_timed = can_ && bytes >= least_told_bytes && (slow_ > 0 || ++plain_ % timed_of == 0);
  const auto begin = is_timed ? Clock::now() : Clock::time_point();
  std::memcpy(destination, source, bytes);
  if (is_timed)
    plain_took(bytes, static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - begin).count()));
}

void CrossingCopies::plain_took(std::size_t bytes, std::uint64_t ns) {
  const bool is_slow = ns > bytes / 1024 * slow_ns_per_kib;
  slow_ = is_slow ? std::min(slow_ + 1, slow_in_a_row) : 0;
  if (can_ && slow_ == slow_in_a_row) plain_until_next_ = until_next_plain;
}

bool are_independent(const CopyTask& one, const CopyTask& other) {
  return !overlap(one.destination, one.bytes, other.source, other.bytes) &&
         !overlap(one.destination, one.bytes, other.destination, other.bytes) &&
         !overlap(other.destination, other.bytes, one.source, one.bytes);
}

}  // namespace lockstep::kernel
#endif
