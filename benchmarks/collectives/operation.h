// What an operation does with a rank's buffers, the same for Lockstep and for each peer: how large they are,
// what is in them before the call and what must be in them after. A case counts the elements n of the larger
// of a rank's two buffers, so that all operations of a size move comparable amounts:
//
//                    input     output, p ranks   the output afterwards
//   all_reduce       n         the input         the sum of all inputs
//   reduce_scatter   n         n / p             the rank's part of the sum of all inputs
//   all_gather       n / p     n                 all inputs, in rank order
//   broadcast        n         the input         rank 0's input
//   reduce           n         n, rank 0's only  the sum of all inputs
//   all_to_all       n         n                 the rank's part of every input, in rank order
//   send_recv        n         n                 the partner's input
//
// send_recv is a ping-pong: ranks 0 and 1, 2 and 3, ... are partners, all pairs at once; the even one sends
// first. Its figure is half of a round trip. (A last rank without a partner only waits for the others.)
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace bench {

enum class Operation { all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, send_recv };

inline constexpr std::array<std::pair<const char*, Operation>, 7> operations{
    {{"all_reduce", Operation::all_reduce},
     {"reduce_scatter", Operation::reduce_scatter},
     {"all_gather", Operation::all_gather},
     {"broadcast", Operation::broadcast},
     {"reduce", Operation::reduce},
     {"all_to_all", Operation::all_to_all},
     {"send_recv", Operation::send_recv}}};

/// Throws invalid_argument for a name that is none.
inline Operation operation_named(const std::string& name) {
  std::string known;
  for (const auto& [text, operation] : operations) {
    if (name == text) return operation;
    known += std::string(" ") + text;
  }
  throw std::invalid_argument("unknown operation '" + name + "'; known are" + known);
}

inline const char* name_of(Operation operation) {
  for (const auto& [text, known] : operations) {
    if (operation == known) return text;
  }
  return "?";
}

inline std::size_t size_of(const std::string& dtype) {
  if (dtype == "f32") return 4;
  if (dtype == "bf16") return 2;
  throw std::invalid_argument("unknown dtype '" + dtype + "'; known are f32 and bf16");
}

struct Case {
  Operation op = Operation::all_reduce;
  std::string dtype;
  std::size_t elements = 0;  ///< n of the table above; where parts are made, a multiple of the ranks
  int rank = 0;
  int ranks = 1;

  std::size_t part() const { return elements / static_cast<std::size_t>(ranks); }
  /// With whom send_recv plays; `ranks` for a rank that is left over.
  int partner() const { return std::min(rank ^ 1, ranks); }
};

inline bool in_place(Operation op) { return op == Operation::all_reduce || op == Operation::broadcast; }

/// Whether a buffer consists of equal parts, one for each rank.
inline bool has_parts(Operation op) {
  return op == Operation::reduce_scatter || op == Operation::all_gather || op == Operation::all_to_all;
}

inline std::size_t input_elements(const Case& what) {
  return what.op == Operation::all_gather ? what.part() : what.elements;
}

/// How many elements of a result this rank gets.
inline std::size_t output_elements(const Case& what) {
  if (what.op == Operation::reduce_scatter) return what.part();
  if (what.op == Operation::reduce && what.rank != 0) return 0;
  if (what.op == Operation::send_recv && what.partner() == what.ranks) return 0;
  return what.elements;
}

/// What each rank reads and writes at the least, in bytes, if all share the traffic equally: every input read
/// once by whoever needs it, every output written once. Of send_recv, both of its messages.
inline std::size_t least_traffic(const Case& what) {
  const auto ranks = static_cast<std::size_t>(what.ranks);
  const std::size_t whole = what.elements * size_of(what.dtype);
  const std::size_t part = whole / ranks;
  switch (what.op) {
    case Operation::all_reduce:
    case Operation::all_to_all:
    case Operation::send_recv: return 2 * whole;
    case Operation::broadcast: return whole;
    case Operation::reduce:
    case Operation::reduce_scatter:
    case Operation::all_gather: return whole + part;
  }
  return 0;
}

// What ranks write: small whole numbers, so that sums over up to 16 ranks are exact in every dtype, in any
// order; without a period, so that a part in the wrong place is noticed.
namespace pattern {

inline std::uint32_t at(std::size_t index) {
  return (static_cast<std::uint32_t>(index) * 2654435761U) >> 29U;
}

inline std::uint32_t value(std::size_t index, int rank) {
  return at(index) + static_cast<std::uint32_t>(rank);
}

inline std::uint32_t sum(std::size_t index, int ranks) {
  const auto count = static_cast<std::uint32_t>(ranks);
  return count * at(index) + count * (count - 1) / 2;
}

inline std::uint16_t to_bf16(std::uint32_t exact) {
  const auto number = static_cast<float>(exact);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof(bits));
  return static_cast<std::uint16_t>(bits >> 16U);
}

/// Writes all that the case touches: the input as the call finds it, and the output, where it is another
/// buffer, full of NaNs. (An output that nobody touched would still lie in the cache of whoever wrote it.)
inline void rewrite(const Case& what, void* input, void* output) {
  if (output != input) std::memset(output, 0xff, output_elements(what) * size_of(what.dtype));
  const std::size_t elements = input_elements(what);
  if (what.dtype == "f32") {
    auto* out = static_cast<float*>(input);
    for (std::size_t i = 0; i < elements; ++i) out[i] = static_cast<float>(value(i, what.rank));
  } else {
    auto* out = static_cast<std::uint16_t*>(input);
    for (std::size_t i = 0; i < elements; ++i) out[i] = to_bf16(value(i, what.rank));
  }
}

inline std::uint32_t expected(const Case& what, std::size_t index) {
  const std::size_t part = what.part();
  const std::size_t begin = static_cast<std::size_t>(what.rank) * part;
  switch (what.op) {
    case Operation::all_reduce:
    case Operation::reduce: return sum(index, what.ranks);
    case Operation::reduce_scatter: return sum(begin + index, what.ranks);
    case Operation::all_gather: return value(index % part, static_cast<int>(index / part));
    case Operation::broadcast: return value(index, 0);
    case Operation::all_to_all: return value(begin + index % part, static_cast<int>(index / part));
    case Operation::send_recv: return value(index, what.partner());
  }
  return 0;
}

/// Throws runtime_error unless `output` holds what it must after the call.
inline void check(const Case& what, const void* output) {
  const bool floats = what.dtype == "f32";
  for (std::size_t i = 0; i < output_elements(what); ++i) {
    const std::uint32_t right = expected(what, i);
    const bool same = floats ? static_cast<const float*>(output)[i] == static_cast<float>(right)
                             : static_cast<const std::uint16_t*>(output)[i] == to_bf16(right);
    if (!same) {
      throw std::runtime_error(std::string(name_of(what.op)) + " of " + std::to_string(what.elements) + " " +
                               what.dtype + ": wrong result at element " + std::to_string(i) + " on rank " +
                               std::to_string(what.rank));
    }
  }
}

}  // namespace pattern
}  // namespace bench
