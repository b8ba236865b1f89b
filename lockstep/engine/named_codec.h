// What the messages about named operations are made of, as bytes; each length is bounded before memory is
// taken for it. docs/wire_formats.md, section "Named operations".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/byte_codec.h"
#include "lockstep/engine/named_request.h"

namespace lockstep {

/// Throws Error{corrupt_data} about what another rank has sent.
[[noreturn]] void throw_corrupt_message(const std::string& what);

void encode(const NamedRequest& request, std::string& out);
void append_list(std::string& out, std::span<const std::int64_t> numbers);

/// Takes numbers and texts from the front of what came from another rank. Throws Error{corrupt_data} where it
/// ends too early.
class NamedReader {
 public:
  explicit NamedReader(std::string_view bytes) : in_(bytes) {}
  bool at_end() const { return in_.at_end(); }
  template <base::Number T>
  T number() {
    const auto number = in_.number<T>();
    if (!number) throw_corrupt_message("it ends in the middle of a number");
    return *number;
  }
  /// A length of at most `most`.
  std::size_t length(std::size_t most);
  std::string text(std::size_t most_bytes);
  std::vector<std::int64_t> list(std::size_t most);
  /// Sound, as require_sound() has it; corrupt_data otherwise.
  NamedRequest request();

 private:
  base::ByteReader in_;
};

}  // namespace lockstep
