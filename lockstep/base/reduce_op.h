// How a reduction combines two elements.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

/// `average` is `sum` scaled by 1/ranks before the one rounding. Integers have no average. `band`, `bor` and
/// `bxor` are and, or and exclusive or of each bit. `custom` is an operation of the user's. Which of them a
/// type has: supports() in kernel/reduce.h.
/// The numbers are part of the wire format: never reuse one.
enum class ReduceOp : std::uint8_t {
  sum = 0,
  product = 1,
  min = 2,
  max = 3,
  average = 4,
  band = 5,
  bor = 6,
  bxor = 7,
  custom = 8,
};

inline constexpr ReduceOp all_reduce_ops[] = {ReduceOp::sum, ReduceOp::product, ReduceOp::min,
                                              ReduceOp::max, ReduceOp::average, ReduceOp::band,
                                              ReduceOp::bor, ReduceOp::bxor,    ReduceOp::custom};

constexpr std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "sum";
    case ReduceOp::product: return "product";
    case ReduceOp::min: return "min";
    case ReduceOp::max: return "max";
    case ReduceOp::average: return "average";
    case ReduceOp::band: return "band";
    case ReduceOp::bor: return "bor";
    case ReduceOp::bxor: return "bxor";
    case ReduceOp::custom: return "custom";
  }
  return "?";
}

}  // namespace lockstep
