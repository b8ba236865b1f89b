#include "lockstep/base/quote.h"

#include <array>
#include <cstdio>

namespace lockstep::base {

std::string quote(std::string_view text) {
  constexpr std::size_t shown = 200;
  std::string out = "\"";
  for (const char c : text.substr(0, shown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f && c != '"' && c != '\\') {
      out += c;
      continue;
    }
    std::array<char, 8> escape{};
    (void)std::snprintf(escape.data(), escape.size(), "\\x%02x", byte);
    out += escape.data();
  }
  return out + (text.size() > shown ? "…\"" : "\"");
}

}  // namespace lockstep::base
