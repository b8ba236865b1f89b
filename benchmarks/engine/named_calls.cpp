// What a named all-reduce costs, as a program sees it: calls one after the other, many tensors that ranks
// submit in orders of their own, and what a rank costs that has nothing to do. benchmarks/engine/run starts
// it; horovod_calls.py does the same with Horovod.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/engine.h"
#include "lockstep/lockstep.h"

namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

void report(const lockstep::NamedCollectives& named, const char* what, std::size_t bytes, double value) {
  if (named.rank() == 0)
    std::printf("{\"case\": \"%s\", \"bytes\": %zu, \"value\": %.4g}\n", what, bytes, value);
}

void one_after_the_other(const lockstep::NamedCollectives& named, std::size_t elements, int calls) {
  std::vector<float> values(elements);
  std::vector<double> times;
  for (int call = -calls / 10; call < calls; ++call) {
    std::ranges::fill(values, 1.0F);
    const auto begin = Clock::now();
    named.all_reduce("values", values, lockstep::ReduceOp::sum).wait();
    if (call >= 0) times.push_back(us_since(begin));
    if (values[0] != static_cast<float>(named.size())) throw std::runtime_error("a sum is wrong");
  }
  report(named, "one after the other", elements * sizeof(float), median(std::move(times)));
}

void many_in_any_order(const lockstep::NamedCollectives& named, std::size_t tensors, int rounds) {
  std::vector<std::vector<float>> values(tensors, std::vector<float>(64));
  std::vector<std::string> names;
  for (std::size_t i = 0; i < tensors; ++i) names.push_back("tensor " + std::to_string(i));
  std::vector<std::size_t> order(tensors);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(static_cast<unsigned>(named.rank()));
  std::vector<double> times;
  for (int round = -1; round < rounds; ++round) {
    std::ranges::shuffle(order, random);
    for (auto& each : values) std::ranges::fill(each, 1.0F);
    named.barrier("round").wait();
    const auto begin = Clock::now();
    std::vector<lockstep::Work> works;
    for (const auto i : order)
      works.push_back(named.all_reduce(names[i], values[i], lockstep::ReduceOp::sum));
    lockstep::Work::all(std::move(works)).wait();
    if (round >= 0) times.push_back(us_since(begin));
    for (const auto& each : values) {
      if (each[63] != static_cast<float>(named.size())) throw std::runtime_error("a sum is wrong");
    }
  }
  report(named, "many in any order", tensors * 64 * sizeof(float), median(std::move(times)));
  const auto statistics = named.statistics();
  report(named, "calls of many", 0, static_cast<double>(statistics.calls));
}

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Shares of a core: of rank 0 while it waits for rank 1, and while it has nothing to do.
void idle(const lockstep::NamedCollectives& named, std::chrono::milliseconds length) {
  std::vector<float> values(16);
  for (const bool waits : {true, false}) {
    named.barrier("idle").wait();
    const auto begin = Clock::now();
    const double used = processor_seconds();
    lockstep::Work work;
    // The time itself is what is measured: how much of it rank 0 uses.
    if (named.rank() != 0 || !waits) std::this_thread::sleep_for(length);
    named.all_reduce("values", values).wait();
    const double share = (processor_seconds() - used) * 1e6 / us_since(begin);
    report(named, waits ? "share of a core, waiting" : "share of a core, idle", 0, share);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times named all-reduces; benchmarks/engine/run starts it.");
  int calls = 2000;
  int rounds = 20;
  int idle_ms = 2000;
  std::vector<std::size_t> elements = {16, 1024, 262144};
  app.add_option("--calls", calls, "of each size")->capture_default_str();
  app.add_option("--rounds", rounds, "of 1,000 tensors")->capture_default_str();
  app.add_option("--idle-ms", idle_ms, "0: leave it out")->capture_default_str();
  app.add_option("--elements", elements, "of f32")->delimiter(',')->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    const lockstep::NamedCollectives named(lockstep::init());
    for (const auto count : elements)
      one_after_the_other(named, count, std::max(10, calls / (count > 100'000 ? 10 : 1)));
    many_in_any_order(named, 1000, rounds);
    if (idle_ms > 0) idle(named, std::chrono::milliseconds(idle_ms));
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "named_calls: %s\n", error.what());
    return 1;
  }
  return 0;
}
