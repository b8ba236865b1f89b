#include "lockstep/base/svg.h"

#include <cstdint>

namespace lockstep::svg {
namespace {

/// Bytes of the UTF-8 character that `text` begins with; 0 if that is none, or none that XML may hold.
std::size_t character_at(std::string_view text) {
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  std::uint32_t code = first & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::array<std::uint32_t, 5> least = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  const bool is_none = code == 0xfffe || code == 0xffff || code > 0x10ffff || (code >= 0x80 && code < 0xa0);
  return first < 0xc2 || first > 0xf4 || code < least[bytes] || is_surrogate || is_none ? 0 : bytes;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = character_at(text);
    if (bytes == 0) {
      out += '?';
    } else if (text[0] == '<') {
      out += "&lt;";
    } else if (text[0] == '>') {
      out += "&gt;";
    } else if (text[0] == '&') {
      out += "&amp;";
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max(bytes, std::size_t{1}));
  }
  return out;
}

std::string begin(double width, double height, double y, std::string_view title) {
  std::string svg;
  add(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\"", width, height);
  add(svg, " viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"13\">\n", width, height);
  svg += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  add(svg, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\" font-size=\"17\" fill=\"#111\">", width / 2,
      y);
  return svg + escaped(title) + "</text>\n";
}

void add_text(std::string& svg, double x, double y, const char* anchor, const char* colour,
              const std::string& text) {
  add(svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">", x, y, anchor, colour);
  svg += text + "</text>\n";
}

}  // namespace lockstep::svg
