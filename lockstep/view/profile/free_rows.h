// Ranges of one row of a picture may not overlap: each goes into the first row that is free.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::view {

/// Ranges of one row have to nest: one that would overlap another takes the next row that is free.
class FreeRows {
 public:
  /// The row's index, and whether it is new.
  std::pair<int, bool> take(std::uint64_t begin, std::uint64_t end) {
    auto free = std::ranges::find_if(ends_, [&](std::uint64_t until) { return until <= begin; });
    const bool is_new = free == ends_.end();
    if (is_new) free = ends_.insert(free, 0);
    *free = std::max(begin, end);
    return {static_cast<int>(free - ends_.begin()), is_new};
  }

 private:
  std::vector<std::uint64_t> ends_;
};

}  // namespace lockstep::view
