#include "lockstep/train/trainer/history.h"

#include <array>
#include <charconv>
#include <string_view>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/train/tensor/number_text.h"

namespace lockstep {
namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 20;  // of one value of a checkpoint's metadata
constexpr std::array figures = {&EpochResult::train_loss, &EpochResult::eval_loss,
                                &EpochResult::eval_accuracy, &EpochResult::images_per_second,
                                &EpochResult::learning_rate};

/// Takes a number off `line`; behind it the line ends, or goes on after one space.
template <class Number>
bool take(std::string_view& line, Number& number) {
  const auto [end, failure] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (failure != std::errc()) return false;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  if (line.empty()) return true;
  if (line.front() != ' ' || line.size() == 1) return false;
  line.remove_prefix(1);
  return true;
}

}  // namespace

std::string encode_history(const std::vector<EpochResult>& history) {
  std::string text;
  for (const EpochResult& result : history) {
    text += number_text(result.epoch);
    for (const auto figure : figures) text.append(1, ' ').append(number_text(result.*figure));
    text += '\n';
  }
  if (text.size() > most_bytes) text.erase(0, text.find('\n', text.size() - most_bytes) + 1);
  return text;
}

std::vector<EpochResult> decode_history(const std::string& text, const std::string& what) {
  std::vector<EpochResult> history;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view whole_line = rest.substr(0, rest.find('\n'));
    std::string_view line = whole_line;
    EpochResult result;
    bool is_good = take(line, result.epoch);
    for (const auto figure : figures) is_good = is_good && take(line, result.*figure);
    if (!is_good || !line.empty() || whole_line.size() == rest.size()) {
      throw Error(ErrorCode::corrupt_data, what + ": expected a line with an epoch and " +
                                               std::to_string(figures.size()) + " figures, found " +
                                               base::quote(whole_line) + "; take another checkpoint");
    }
    history.push_back(result);
    rest.remove_prefix(whole_line.size() + 1);
  }
  return history;
}

}  // namespace lockstep
