// Numbers and texts of the messages about named operations, as bytes: little-endian, lengths in front, each
// bounded before memory is taken for it. docs/wire_formats.md, section "Named operations".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/engine/named_request.h"

namespace lockstep {

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
