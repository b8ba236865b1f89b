// A rank that checks every collective and says "conforms, all_reduce by ALGORITHM", or what does not.
#include <cstdio>
#include <exception>
#include <span>
#include <string>

#include "lockstep/group/collectives.h"
#include "lockstep/group/init.h"
#include "lockstep/trace/recorder.h"
#include "tests/conformance/conformance.h"

int main() try {
  const auto world = lockstep::init();
  constexpr std::size_t counts[] = {0, 1, 33, 520, 3001};
  for (const bool in_arena : {false, true}) {
    const lockstep::testing::ConformanceOptions options{.in_arena = in_arena, .counts = counts};
    lockstep::testing::check_reductions(world, options);
    lockstep::testing::check_movements(world, options);
    lockstep::testing::check_custom_op(world, options);
    lockstep::testing::check_rounding(world, options, world.size());
    lockstep::testing::check_messages(world, in_arena);
  }
  float one = 1;
  lockstep::all_reduce(world, std::span(&one, 1)).wait();
  const auto events = world.recorder().collectives_since(0);
  std::printf("conforms, all_reduce by %s\n", std::string(events.back().algorithm).c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
