// Who keeps the others waiting? Each rank records when it came to a collective; here the parts of all ranks are put
// together, as they are read, and whoever came last is named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "lockstep/trace/event.h"

namespace lockstep::view {

struct LastArrival {
  std::size_t place = 0;      ///< of the rank, as it was passed
  std::uint64_t late_ns = 0;  ///< after the one before it
};

class ArrivalMatcher {
 public:
  /// The part of the rank at `place` in a collective of `members` ranks, each of which is passed once; the clocks of all are
  /// one. Tells who was last when the last part is there. Where parts never come, the oldest state is dropped.
  std::optional<LastArrival> add(std::size_t place, const trace::CompletedCollective& call,
                                 std::size_t members);

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // group, sequence
  struct Meeting {
    std::size_t arrived = 0;
    std::size_t last = 0;
    std::uint64_t last_ns = 0;
    std::uint64_t before_ns = 0;
  };

  std::map<Key, Meeting> meetings_;
};

}  // namespace lockstep::view
