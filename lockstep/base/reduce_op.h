// How a reduction combines two elements.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

/// `average` is `sum` scaled by 1/ranks before the one rounding. Integers have no average.
/// The numbers are part of the wire format: never reuse one.
enum class ReduceOp : std::uint8_t { sum = 0, product = 1, min = 2, max = 3, average = 4 };

constexpr std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "sum";
    case ReduceOp::product: return "product";
    case ReduceOp::min: return "min";
    case ReduceOp::max: return "max";
    case ReduceOp::average: return "average";
  }
  return "?";
}

}  // namespace lockstep
