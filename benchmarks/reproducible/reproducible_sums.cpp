// An all_reduce and a reproducible one of the same f32 buffers, one contribution a rank or several: medians,
// in turn. benchmarks/reproducible/run starts it under `lockstep run`, and reads the lines that rank 0
// prints.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <vector>

#include "lockstep/group/reproducible.h"
#include "lockstep/lockstep.h"

namespace {

constexpr int repetitions = 41;

/// Microseconds on the slowest rank.
double time_of(const lockstep::Group& world, const std::function<void()>& call) {
  lockstep::barrier(world).wait();
  const auto begin = std::chrono::steady_clock::now();
  call();
  double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  lockstep::all_reduce(world, std::span(&us, 1), lockstep::ReduceOp::max).wait();
  return us;
}

double median(std::vector<double> times) {
  std::ranges::nth_element(times, times.begin() + repetitions / 2);
  return times[repetitions / 2];
}

void measure(const lockstep::Group& world, std::size_t elements, std::size_t contributions) {
  std::vector<std::vector<float>> own(contributions, std::vector<float>(elements, 0.1F));
  std::vector<float> sum(elements);
  std::vector<std::span<const float>> inputs(own.begin(), own.end());
  const auto ordinary = [&] {
    std::ranges::copy(own[0], sum.begin());
    for (std::size_t i = 1; i < contributions; ++i) {
      for (std::size_t j = 0; j < elements; ++j) sum[j] += own[i][j];
    }
    lockstep::all_reduce(world, sum).wait();
  };
  const auto reproducible = [&] { lockstep::reproducible_all_reduce<float>(world, inputs, sum); };
  std::vector<double> ordinary_us;
  std::vector<double> reproducible_us;
  for (int i = 0; i < repetitions; ++i) {
    ordinary_us.push_back(time_of(world, ordinary));
    reproducible_us.push_back(time_of(world, reproducible));
  }
  if (world.rank() != 0) return;
  std::printf(R"({"bytes": %zu, "contributions": %zu, "ordinary_us": %.2f, "reproducible_us": %.2f})"
              "\n",
              elements * sizeof(float), contributions, median(ordinary_us), median(reproducible_us));
}

}  // namespace

int main() {
  try {
    const lockstep::Group world = lockstep::init();
    for (const std::size_t contributions : {1, 4, 5}) {
      for (const std::size_t bytes : {4096, 65536, 1 << 20, 25 << 20})
        measure(world, bytes / sizeof(float), contributions);
    }
    return 0;
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "reproducible_sums: %s\n", error.what());
    return 1;
  }
}
