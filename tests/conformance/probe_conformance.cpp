// A rank that checks every collective and says "conforms, all_reduce by ALGORITHM", or what does not.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/group/collectives.h"
#include "lockstep/group/init.h"
#include "lockstep/trace/recorder.h"
#include "tests/conformance/conformance.h"

namespace {

std::span<float> mapped_at(float* place, std::size_t elements) {
  void* const made = ::mmap(place, elements * sizeof(float), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | (place != nullptr ? MAP_FIXED : 0), -1, 0);
  if (made == MAP_FAILED) throw std::runtime_error("no memory");
  return {static_cast<float*>(made), elements};
}

/// What is freed while it is registered, on some ranks, is not read afterwards, though others have the pages mapped.
void check_freed_memory(const lockstep::Group& world) {
  const auto buffer = mapped_at(nullptr, 100'000);
  const lockstep::RegisteredMemory registered = world.register_memory(buffer);
  for (int call = 0; call < 4; ++call) {
    if (call == 2 && world.rank() % 2 == 0) (void)mapped_at(buffer.data(), buffer.size());
    std::ranges::fill(buffer, static_cast<float>(call + 1));
    lockstep::all_reduce(world, buffer).wait();
    const auto right = static_cast<float>((call + 1) * world.size());
    if (std::ranges::count(buffer, right) != std::ssize(buffer))
      throw std::runtime_error("a sum in memory that was registered is wrong");
  }
}

/// Long enough that the receiver reads them where they lie, though the first and the last of them lie beside something else.
void check_long_messages(const lockstep::Group& world) {
  if (world.size() == 1) return;
  const auto pages = mapped_at(nullptr, 600'000);
  const auto [first, second] = std::pair(pages.subspan(17, 290'001), pages.subspan(290'018, 300'000));
  const std::array registered = {world.register_memory(first), world.register_memory(second)};
  for (const auto& message : {first, second}) {
    std::iota(message.begin(), message.end(), static_cast<float>(world.rank()));
    if (world.rank() == 0) lockstep::send(world, std::span<const float>(message), 1).wait();
    if (world.rank() != 1) continue;
    std::vector<float> received(message.size());
    lockstep::recv(world, std::span(received), 0).wait();
    for (std::size_t i = 0; i < received.size(); ++i) {
      if (received[i] != static_cast<float>(i))
        throw std::runtime_error("a long message of registered memory is wrong");
    }
  }
}

/// Of a group whose ranks have other numbers, and of one that is made of it.
void check_memory_of_others(const lockstep::Group& world) {
  if (world.size() == 1) return;
  std::vector<int> backwards(static_cast<std::size_t>(world.size()));
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  const lockstep::Group reversed = world.subgroup(backwards);
  constexpr std::size_t counts[] = {33, 10'000};
  for (const auto& [caller, owner] : {std::pair(&world, &reversed), std::pair(&reversed, &world)}) {
    for (const bool registered : {false, true}) {
      const lockstep::testing::ConformanceOptions options{
          .in_arena = !registered, .registered = registered, .memory_of = owner, .counts = counts};
      lockstep::testing::check_sums(*caller, options);
      lockstep::testing::check_movements(*caller, options);
      lockstep::testing::check_messages(*caller, options);
    }
  }
}

namespace checks = lockstep::testing;

void check_everything(const lockstep::Group& world) {
  constexpr std::size_t counts[] = {0, 1, 33, 520, 3001};
  for (const bool in_arena : {false, true}) {
    const checks::ConformanceOptions options{.in_arena = in_arena, .counts = counts};
    checks::check_reductions(world, options);
    checks::check_sums(world, options);
    checks::check_movements(world, options);
    checks::check_custom_op(world, options);
    checks::check_rounding(world, options, world.size());
    checks::check_messages(world, options);
  }
  // Registered memory counts from some size on.
  constexpr std::size_t large_counts[] = {1, 10'000};
  const checks::ConformanceOptions registered{.registered = true, .counts = large_counts};
  checks::check_sums(world, registered);
  checks::check_movements(world, registered);
  checks::check_messages(world, registered);
  check_memory_of_others(world);
  check_long_messages(world);
  check_freed_memory(world);
}

/// With LOCKSTEP_WIRE_DTYPE, `wire`.
void check_halves_between_hosts(const lockstep::Group& world, std::string_view wire) {
  constexpr std::size_t short_and_long[] = {100, 5001, 300'001};
  for (const bool in_arena : {false, true}) {
    const checks::ConformanceOptions options{.in_arena = in_arena, .counts = short_and_long};
    checks::check_narrow_wire(world, options, wire == "bf16" ? 0x1p-8 : 0x1p-11);
    checks::check_movements(world, options);
  }
}

}  // namespace

int main() try {
  const auto world = lockstep::init();
  if (const char* const wire = std::getenv("LOCKSTEP_WIRE_DTYPE")) {
    check_halves_between_hosts(world, wire);
  } else {
    check_everything(world);
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
