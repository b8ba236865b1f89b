// Random numbers that depend on what they are for, and not on who draws them or when.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <mutex>

namespace lockstep {

/// Of two numbers, one that is another for any other two (splitmix64's finalizer).
constexpr std::uint64_t mixed(std::uint64_t seed, std::uint64_t number) {
  std::uint64_t x = seed + (number + 1) * 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// Of the CPU alone: torch::manual_seed() would have all GPUs draw the same, too.
inline void seed_cpu_generator(std::uint64_t seed) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

/// libtorch's generator on the CPU is as it was when this ends.
class KeepsGenerator {
 public:
  KeepsGenerator() : generator_(at::detail::getDefaultCPUGenerator()), state_(generator_.get_state()) {}
  ~KeepsGenerator() { generator_.set_state(state_); }
  KeepsGenerator(const KeepsGenerator&) = delete;
  KeepsGenerator& operator=(const KeepsGenerator&) = delete;

 private:
  at::Generator generator_;
  torch::Tensor state_;
};

}  // namespace lockstep
