// Code that keeps a state between calls is not fuzzed by one text but by a row of calls. A script reads an
// input as such a row: numbers that say what to do next, and the bytes to do it with. Nothing is read from it
// between the parentheses of a call that has two arguments: compilers differ in which one comes first, and an
// input has to mean the same everywhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/targets.h"

namespace lockstep::fuzz {

class Script {
 public:
  explicit Script(Input input) : rest_(input) {}

  bool is_over() const { return rest_.empty(); }

  /// 0 where the input is over, as all that follow.
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto first = std::to_integer<std::uint8_t>(rest_.front());
    rest_ = rest_.subspan(1);
    return first;
  }
  /// REQUIRES: end between 1 and 256.
  int below(int end) { return byte() % end; }
  /// Of 1 to 8 bytes, little-endian.
  std::uint64_t number(int bytes) {
    std::uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value |= std::uint64_t{byte()} << (8 * i);
    return value;
  }
  /// So many, or what is left.
  Input bytes(std::size_t most) {
    const Input taken = rest_.first(std::min(most, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  std::string text(std::size_t most) {
    const Input taken = bytes(most);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

 private:
  Input rest_;
};

/// What run_one() does where a Trial plays a whole script.
template <class Trial>
int play(Input input) {
  Script script(input);
  Trial().run(script);
  return 0;
}

}  // namespace lockstep::fuzz
