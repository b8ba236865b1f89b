// Random numbers that follow from a few numbers (a seed, an epoch, a sample) alone: on every machine, in
// every version of this library, and in whatever order they are asked for. So a run that resumes from a
// checkpoint, or makes its batches in another number of threads, sees what it would have seen.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace lockstep {

/// Cost: about 1 ns a number. Not for secrets. Not <random>'s distributions or std::shuffle: the standard
/// leaves their results to each library. Source: Steele, Lea & Flood 2014; Lemire 2019 (bounded integers).
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t state) : state_(state) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  /// Uniform in 0…bound-1. REQUIRES: bound is not 0.
  std::uint64_t below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    Wide product = Wide{next()} * bound;
    if (static_cast<std::uint64_t>(product) < bound) {
      const std::uint64_t unfair = (0 - bound) % bound;
      while (static_cast<std::uint64_t>(product) < unfair) product = Wide{next()} * bound;
    }
    return static_cast<std::uint64_t>(product >> 64);
  }

  /// Uniform in [0, 1), one of 2^53 numbers.
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

/// One stream for each row of numbers, as {seed, epoch}; rows that differ in their last number alone never
/// share one.
inline SplitMix64 random_stream(std::initializer_list<std::uint64_t> numbers) {
  std::uint64_t state = 0;
  for (const std::uint64_t number : numbers) state = SplitMix64(state + number).next();
  return SplitMix64(state);
}

}  // namespace lockstep
