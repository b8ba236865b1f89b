// What a picture as SVG is written with.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace lockstep::svg {

/// As printf.
template <class... Values>
void add(std::string& svg, const char* format, Values... values) {
  std::array<char, 400> text{};
  const int length = std::snprintf(text.data(), text.size(), format, values...);
  svg.append(text.data(), std::min(static_cast<std::size_t>(std::max(length, 0)), text.size() - 1));
}

/// `text` as XML may hold it; each byte that is of no character is "?".
std::string escaped(std::string_view text);

/// The start of a picture of so many pixels with `title`, not escaped yet, above its middle at the height `y`.
std::string begin(double width, double height, double y, std::string_view title);

/// `text` is escaped already. `anchor`: start, middle or end.
void add_text(std::string& svg, double x, double y, const char* anchor, const char* colour,
              const std::string& text);

}  // namespace lockstep::svg
