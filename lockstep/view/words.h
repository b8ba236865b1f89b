// How views speak of times and ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::view {

/// "0.4 ms", "850 ms", "2.1 s", "3 min 20 s", "1 h 5 min".
std::string duration(std::uint64_t nanoseconds);

/// "rank 1", "ranks 0, 2-4": in ascending order.
std::string names(const std::vector<int>& ranks);

}  // namespace lockstep::view
