// What examples write their pictures and tables with.
#pragma once

#include <cstdio>
#include <string>

namespace examples {

/// As printf; at most 255 characters.
template <class... Values>
std::string line(const char* format, Values... values) {
  char text[256];
  (void)std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace examples
