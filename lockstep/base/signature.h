// What a rank says about its call, beside its arrival: so that ranks which called different things find out
// instead of waiting for each other, and so that each knows where the others' buffers are.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/dtype.h"
#include "lockstep/base/operation.h"
#include "lockstep/base/reduce_op.h"

namespace lockstep {

/// Goes into shared memory and onto the wire as it is (little-endian machines only).
struct Signature {
  std::uint64_t elements = 0;      ///< per rank
  std::uint64_t arena_offset = 0;  ///< of the buffer in its rank's arena, if in_arena
  std::int32_t root = 0;           ///< broadcast's source, a message's sender
  Operation operation = Operation::barrier;
  Dtype dtype = Dtype::u8;
  ReduceOp reduce_op = ReduceOp::sum;
  std::uint8_t in_arena = 0;

  /// Whether two ranks called the same thing; where their buffers lie may differ.
  bool matches(const Signature& other) const {
    return elements == other.elements && root == other.root && operation == other.operation &&
           dtype == other.dtype && reduce_op == other.reduce_op;
  }
};
static_assert(sizeof(Signature) == 24);

/// As in messages: "all_reduce (sum of f32 x 262144)", "broadcast (16 bytes from rank 0)".
std::string to_string(const Signature& signature);

}  // namespace lockstep
