// Numbers as text, in messages and in checkpoints: what goes on from them must not differ by a rounding.
#pragma once

#include <array>
#include <charconv>
#include <string>

namespace lockstep {

/// The shortest text that is read as the same number.
template <class Number>
std::string number_text(Number number) {
  std::array<char, 40> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

}  // namespace lockstep
