// What writers of timelines share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "lockstep/view/profile/timeline.h"

namespace lockstep::view {

/// As most names are: the same in JSON and as UTF-8.
inline bool is_plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
}

/// In quotes. Names may be any bytes.
inline std::string in_json(std::string_view text) {
  if (is_plain(text)) return '"' + std::string(text) + '"';
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// With a mark for each byte that is none.
inline std::string as_utf8(std::string_view text) {
  if (is_plain(text)) return std::string(text);
  return nlohmann::json::parse(in_json(text)).get<std::string>();
}

/// Of a named operation.
inline std::uint64_t elements_of(const trace::SpanEvent& span) {
  constexpr double most = 9e15;
  return span.value >= 0 && span.value <= most ? static_cast<std::uint64_t>(span.value) : 0;
}

/// Text that is passed on piece by piece.
class PiecewiseText {
 public:
  explicit PiecewiseText(const std::function<void(std::string_view)>& write) : write_(write) {}
  /// For what is appended next.
  std::string& text() {
    constexpr std::size_t piece_bytes = std::size_t{1} << 16;
    if (text_.size() > piece_bytes) flush();
    return text_;
  }
  void flush() {
    write_(text_);
    text_.clear();
  }

 private:
  const std::function<void(std::string_view)>& write_;
  std::string text_;
};

}  // namespace lockstep::view
