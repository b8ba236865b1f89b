// Whether two pieces of memory have bytes in common.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace lockstep::base {

/// False where one of them is empty.
inline bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<> before;  // a total order also for pointers into different objects
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

}  // namespace lockstep::base
