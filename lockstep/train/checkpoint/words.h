// Rows of words and numbers in the texts of a checkpoint: read piece by piece, and nothing taken for a number
// that is none.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

/// Words and numbers, each but the last with one space after it.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  std::optional<std::string_view> word() {
    if (rest_.empty()) return std::nullopt;
    const auto word = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(std::min(rest_.size(), word.size() + 1));
    return word;
  }
  std::optional<std::uint64_t> number(std::uint64_t most) {
    const auto text = word().value_or("");
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || error != std::errc() || end != text.data() + text.size() || value > most)
      return std::nullopt;
    return value;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace lockstep
