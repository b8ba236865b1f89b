#include "probe_loop.h"

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "lockstep/base/env.h"
#include "probe_collectives.h"
#include "tests/soak/victim.h"

namespace probe {
namespace {

using lockstep::Group;

/// Two all_reduces under way at once, as gradients' buckets are.
void overlapping(const Group& group, std::size_t elements) {
  const auto first = group.allocate<float>(elements);
  std::vector<float> second(elements, 2.0F);
  std::fill(first.begin(), first.end(), 1.0F);
  auto one = lockstep::all_reduce(group, first);
  auto two = lockstep::all_reduce(group, second);
  two.wait();
  one.wait();
  const auto ranks = static_cast<float>(group.size());
  const auto is = [](float right) { return [right](float found) { return found == right; }; };
  if (!std::all_of(first.begin(), first.end(), is(ranks)) ||
      !std::all_of(second.begin(), second.end(), is(2 * ranks))) {
    throw WrongResult("two overlapping all_reduces of " + std::to_string(elements));
  }
}

void call_something(const Group& group, std::mt19937_64& dice) {
  static constexpr std::array<std::size_t, 6> sizes = {1, 8, 1000, 20'000, 300'000, 1'000'000};
  const std::size_t size = sizes[dice() % sizes.size()];
  const bool in_arena = dice() % 2 == 0;
  const int root = static_cast<int>(dice() % static_cast<std::uint64_t>(group.size()));
  switch (dice() % 4) {
    case 0: return all_reduce(group, lockstep::Dtype::f32, size, in_arena);
    case 1: return broadcast(group, size, root, in_arena);
    case 2: return all_gather(group, size, in_arena);
    default: return overlapping(group, size);
  }
}

/// Memory that nobody may touch after the failure: taken from the arena only now, out of what is left of it
/// when everything freed before is never used again; and results that were complete before.
class Untouched {
 public:
  explicit Untouched(const Group& group) : results_(group.allocate<float>(elements)) {
    std::fill(results_.begin(), results_.end(), 1.0F);
    lockstep::all_reduce(group, results_).wait();
    expected_ = static_cast<float>(group.size());
  }
  void take_more(const Group& group) {
    fresh_ = group.allocate<float>(elements);
    std::fill(fresh_.begin(), fresh_.end(), 7.0F);
  }
  bool is_whole() const {
    return std::count(results_.begin(), results_.end(), expected_) == elements &&
           std::count(fresh_.begin(), fresh_.end(), 7.0F) == elements;
  }

 private:
  static constexpr std::ptrdiff_t elements = 1'000'000;
  lockstep::ArenaBuffer<float> results_;
  lockstep::ArenaBuffer<float> fresh_;
  float expected_ = 0;
};

}  // namespace

int loop(const Group& group) {
  std::mt19937_64 dice(
      static_cast<std::uint64_t>(lockstep::env::integer("SOAK_SEED", 0, INT64_MAX).value_or(0)));
  Untouched memory(group);
  return soak::loop_until_hurt(
      group, [&] { call_something(group, dice); }, [&] { memory.take_more(group); },
      [&] { return memory.is_whole(); });
}

}  // namespace probe
