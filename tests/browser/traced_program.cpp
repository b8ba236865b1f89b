// Leaves in a timeline all that a program can: ranges in ranges, on two threads, calls under way at once, those of a subgroup,
// a counter; and names that a page must not take for markup.
//   traced_program [die]     die: the last rank does, half way
#include <lockstep/lockstep.h>

#include <array>
#include <chrono>
#include <csignal>
#include <exception>
#include <iostream>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using lockstep::TracedRange;

constexpr int rounds = 30;

void work() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

void round_of(const lockstep::Group& world, const lockstep::Group& subgroup, int round) {
  const TracedRange outer("round");
  std::vector<float> one(10000, 1), other(1000, 1);
  {
    const TracedRange inner(R"(<script>document.title = "taken"</script>)");
    work();
    const TracedRange innermost(R"(<img src=x onerror="document.title = 1">)");
    work();
  }
  auto first = lockstep::all_reduce(world, one);
  auto second = lockstep::all_reduce(world, other);
  {
    const TracedRange inner(R"("quoted" & 'so' </script><b>)");
    work();
  }
  first.wait();
  second.wait();
  std::array<int, 1> sum = {round};
  lockstep::all_reduce(subgroup, sum).wait();
  lockstep::traced_counter("<i>rounds</i> \"so\"", round);
}

}  // namespace

int main(int argc, char** argv) try {
  const bool dies = argc > 1 && std::string_view(argv[1]) == "die";
  const auto world = lockstep::init();
  const auto subgroup = world.split(0, -world.rank()).value();  // the other way round
  std::jthread other([] {
    for (int i = 0; i < rounds; ++i) {
      const TracedRange outer("on another thread");
      const TracedRange inner("within it");
      work();
    }
  });
  for (int i = 0; i < rounds; ++i) {
    if (dies && i == rounds / 2 && world.rank() + 1 == world.size()) (void)::raise(SIGKILL);
    round_of(world, subgroup, i);
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "traced_program: " << error.what() << std::endl;
  return 1;
}
