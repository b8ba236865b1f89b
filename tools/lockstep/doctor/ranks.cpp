#include <fcntl.h>
#include <unistd.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "examine.h"
#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/init.h"
#include "lockstep/launch/spawn.h"

namespace doctor {
namespace {

constexpr int ranks = 2;
constexpr std::size_t elements = 100'000;
constexpr std::chrono::seconds longest{30};

/// A sum of what all ranks have, which is checked.
void average(int rank) {
  const lockstep::Group world = lockstep::init();
  std::vector<float> values(elements, static_cast<float>(rank + 1));
  lockstep::all_reduce(world, std::span(values)).wait();
  for (const float value : values) {
    if (value != ranks * (ranks + 1) / 2.0F) throw std::runtime_error("a wrong sum");
  }
}

}  // namespace

void try_ranks(Report& report) {
  const lockstep::SpawnOptions options{
      .ranks = ranks, .pin = false, .prefix = false, .record_dir = "none", .join = false};
  std::string failure;
  const bool said_threads = std::getenv("OMP_NUM_THREADS") != nullptr;
  if (!said_threads) (void)::setenv("OMP_NUM_THREADS", "1", 1);  // or the launcher says what it has chosen
  const auto begin = std::chrono::steady_clock::now();
  try {
    auto started = lockstep::spawn(options, average);
    if (!started.join_for(longest)) failure = "they have not ended within 30 s";
  } catch (const lockstep::Error& error) {
    failure = error.what();
  }
  if (!said_threads) (void)::unsetenv("OMP_NUM_THREADS");
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  report.section("Ranks", "ranks");
  if (failure.empty()) {
    char text[64];
    (void)std::snprintf(text, sizeof text, "start, join and average in %.0f ms", took.count());
    report.fact("two of them", text, "milliseconds", took.count());
    return;
  }
  report.fact("two of them", "fail", "failure", failure);
  report.problem({.weight = 100,
                  .is_fatal = true,
                  .what = "two ranks that join and average an array fail: " + failure,
                  .remedy = "what the system refuses stands in that line; LOCKSTEP_LOG=debug says more"});
}

}  // namespace doctor
