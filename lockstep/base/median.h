// The middle of what was measured.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep::base {

/// Of an even number the greater of the two in the middle: one that was measured. REQUIRES: there are some. O(n).
template <class Number>
Number median(std::vector<Number> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace lockstep::base
