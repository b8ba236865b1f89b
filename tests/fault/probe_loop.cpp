#include "probe_loop.h"

#include <algorithm>
#include <array>
#include <random>

#include "lockstep/base/env.h"
#include "lockstep/group/collectives.h"
#include "probe_shapes.h"
#include "tests/soak/victim.h"

namespace probe {
namespace {

using lockstep::Group;

/// `only`: the collective to call; empty: any.
void call_something(const Group& group, std::mt19937_64& dice, const std::string& only) {
  static constexpr std::array<std::size_t, 6> sizes = {1, 8, 1000, 20'000, 300'000, 1'000'000};
  const auto all = all_collectives();
  const Shape shape{.elements = sizes[dice() % sizes.size()],
                    .memory = all_memories[dice() % all_memories.size()],
                    .root = static_cast<int>(dice() % static_cast<std::uint64_t>(group.size()))};
  const Collective& any = all[dice() % all.size()];
  (only.empty() ? any : collective_named(only)).call(group, shape);
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

int loop(const Group& group, const std::string& only) {
  std::mt19937_64 dice(
      static_cast<std::uint64_t>(lockstep::env::integer("SOAK_SEED", 0, INT64_MAX).value_or(0)));
  Untouched memory(group);
  return soak::loop_until_hurt(
      group, [&] { call_something(group, dice, only); }, [&] { memory.take_more(group); },
      [&] { return memory.is_whole(); });
}

}  // namespace probe
