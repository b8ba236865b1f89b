// Numbers and texts as the bytes of files and messages: the least significant byte first, at any address, a
// length in front of a text. A format that is made with these says its layout alone, and what it calls bytes
// that are missing.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lockstep::base {

static_assert(std::endian::native == std::endian::little, "numbers are moved as they lie in memory");

/// Goes by its bits. No bool, which not all bytes are: use std::uint8_t.
template <class T>
concept Number = (std::is_arithmetic_v<T> || std::is_enum_v<T>)&&!std::same_as<T, bool>;

template <class T>
concept ByteBuffer = std::same_as<T, std::string> || std::same_as<T, std::vector<std::byte>>;

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// REQUIRES: sizeof(T) bytes from `at` on.
template <Number T>
T number_at(std::span<const std::byte> bytes, std::size_t at = 0) {
  T number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

/// One that lies with its most significant byte first. REQUIRES: sizeof(T) bytes from `at` on.
template <Number T>
T big_endian_at(std::span<const std::byte> bytes, std::size_t at = 0) {
  std::array<std::byte, sizeof(T)> number;
  std::memcpy(number.data(), bytes.data() + at, sizeof number);
  std::ranges::reverse(number);
  return std::bit_cast<T>(number);
}

void append_bytes(ByteBuffer auto& out, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const std::size_t end = out.size();
  out.resize(end + bytes.size());  // insert() makes GCC 12 see overflows that are not there
  std::memcpy(out.data() + end, bytes.data(), bytes.size());
}

template <Number T>
void append_number(ByteBuffer auto& out, T number) {
  append_bytes(out, std::as_bytes(std::span(&number, 1)));
}

/// The text alone.
void append_text(ByteBuffer auto& out, std::string_view text) {
  append_bytes(out, std::as_bytes(std::span(text)));
}

/// Of the length in front of a text or a list.
using Length = std::uint32_t;

/// REQUIRES: fewer than 4 GiB.
void append_with_length(ByteBuffer auto& out, std::string_view text) {
  append_number(out, static_cast<Length>(text.size()));
  append_text(out, text);
}

/// Takes numbers and bytes from the front of what may end too early. It knows where it is, and takes nothing
/// where not all of it is there.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  explicit ByteReader(std::string_view text) : bytes_(std::as_bytes(std::span(text))) {}

  /// How many bytes were taken.
  std::size_t at() const { return at_; }
  std::span<const std::byte> left() const { return bytes_.subspan(at_); }
  bool at_end() const { return at_ == bytes_.size(); }

  std::optional<std::span<const std::byte>> take(std::size_t count) {
    if (count > bytes_.size() - at_) return std::nullopt;
    const auto taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }
  template <Number T>
  std::optional<T> number() {
    const auto bytes = take(sizeof(T));
    return bytes ? std::optional(number_at<T>(*bytes)) : std::nullopt;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

}  // namespace lockstep::base
