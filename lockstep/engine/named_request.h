// A named operation, as one rank asks for it. Ranks ask in any order, so what they mean is found by the name,
// and everything else is compared: a shape that differs is an error with both ranks in it, not a sum of
// things that have nothing to do with each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/operation.h"
#include "lockstep/base/reduce_op.h"

namespace lockstep {

using Shape = std::vector<std::int64_t>;

struct NamedLimits {
  std::size_t name_bytes = 4096;
  std::size_t dimensions = 64;
  std::size_t buffers = std::size_t{1} << 16;  ///< of one grouped call
  std::size_t rows = std::size_t{1} << 16;     ///< numbers in NamedRequest::rows
};
inline constexpr NamedLimits named_limits = {};

struct NamedRequest {
  std::string name;
  Operation operation = Operation::barrier;
  Dtype dtype = Dtype::u8;
  ReduceOp reduce_op = ReduceOp::sum;
  float prescale = 1.0F;
  int root = 0;
  /// Of each buffer; several in a grouped all_reduce. Where there are `rows`, without the first dimension.
  std::vector<Shape> shapes = {};
  /// What may differ between ranks. all_gather: how many rows this rank has; all_to_all: how many it sends to
  /// each rank; empty for all others.
  std::vector<std::int64_t> rows = {};

  /// Whether both can be parts of one operation.
  bool fits(const NamedRequest& other) const;
  friend bool operator==(const NamedRequest&, const NamedRequest&) = default;
};

/// As in messages: all_reduce "loss" (average of f32 [3, 4]).
std::string to_string(const NamedRequest& request);

/// The product of the dimensions; 1 for a scalar.
std::size_t elements_of(const Shape& shape);
/// Of all shapes together, for a buffer without rows.
std::size_t bytes_of(const NamedRequest& request);

/// Throws Error{invalid_argument} if the name is empty, or anything is beyond named_limits or negative, or
/// the elements are more than memory can hold.
void require_sound(const NamedRequest& request);

// Little-endian, lengths in front; docs/wire_formats.md, section "Named operations".
void encode(const NamedRequest& request, std::string& out);

/// Takes numbers and texts from the front of what came from another rank. Throws Error{corrupt_data} where it
/// ends too early.
class NamedReader {
 public:
  explicit NamedReader(std::string_view bytes) : bytes_(bytes) {}
  bool at_end() const { return bytes_.empty(); }
  std::uint64_t number(std::size_t bytes);
  /// A length of at most `most`.
  std::size_t length(std::size_t most);
  std::string text(std::size_t most_bytes);
  std::vector<std::int64_t> numbers(std::size_t most);
  /// Sound, as require_sound() has it; corrupt_data otherwise.
  NamedRequest request();

 private:
  std::string_view bytes_;
};

/// Throws Error{corrupt_data} about what another rank has sent.
[[noreturn]] void throw_corrupt_message(const std::string& what);

void put_number(std::string& out, std::uint64_t number, std::size_t bytes);
void put_text(std::string& out, std::string_view text);
void put_numbers(std::string& out, std::span<const std::int64_t> numbers);

}  // namespace lockstep
