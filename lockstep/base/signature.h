// What a rank says about its call, beside its arrival: so that ranks which called different things find out
// instead of waiting for each other, and so that each knows where the others' buffers are.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "lockstep/base/dtype.h"
#include "lockstep/base/operation.h"
#include "lockstep/base/reduce_op.h"

namespace lockstep {

/// Goes into shared memory and onto the wire as it is (little-endian machines only).
struct Signature {
  static constexpr std::uint8_t input_in_arena = 1, output_in_arena = 2, is_in_place = 4;

  /// Of the buffer or of one rank's block, as in Call; the v forms: of all blocks. all_to_all_v, where no rank
  /// knows them all: 0, but of the block that it belongs to in the header of a message. send, recv: bytes.
  std::uint64_t elements = 0;
  static constexpr std::int32_t root_of_update = -1;
  std::int32_t root = 0;  ///< of operations that have one; a message's sender; root_of_update: see detail
  /// What else ranks have to agree in: the v forms a hash of their counts, all_reduce_grouped of its buffers'
  /// sizes, all_reduce_update (group/gpu_update.h) of the optimizer's step, never 0; a user's operation a hash of its name and element size.
  /// A message: its tag.
  std::uint32_t detail = 0;
  float prescale = 1.0F;
  Operation operation = Operation::barrier;
  Dtype dtype = Dtype::u8;
  ReduceOp reduce_op = ReduceOp::sum;
  std::uint8_t flags = 0;  ///< where the buffers lie

  /// all_to_all_v: a rank knows the counts of its own blocks only.
  bool has_counts_of_its_own() const { return operation == Operation::all_to_all && detail != 0; }
  /// Whether ranks differ in what they pass, by counts that each gives: the v forms.
  bool has_counts() const {
    return detail != 0 && reduce_op != ReduceOp::custom && operation != Operation::all_reduce &&
           !is_message(operation);
  }
  /// What was called, if this stands in the header of a message.
  Signature whole_call() const {
    Signature whole = *this;
    if (has_counts_of_its_own()) whole.elements = 0;
    return whole;
  }
  /// Whether two ranks called the same thing; where their buffers lie may differ.
  bool matches(const Signature& other) const {
    Signature moved = other;
    moved.flags = flags;
    return *this == moved;
  }
  // By bits: nothing is in between, and three comparisons are made instead of eight.
  friend bool operator==(const Signature& one, const Signature& other) {
    return one.words() == other.words();
  }

 private:
  std::array<std::uint64_t, 3> words() const { return std::bit_cast<std::array<std::uint64_t, 3>>(*this); }
};
static_assert(sizeof(Signature) == 24);

/// As in messages: "all_reduce (sum of f32 x 262144)", "broadcast (16 bytes from rank 0)".
std::string to_string(const Signature& signature);
/// With the call's number: "all_reduce #412 (sum of f32 x 262144)".
std::string to_string(const Signature& signature, std::uint64_t number);

}  // namespace lockstep
