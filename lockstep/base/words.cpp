#include "lockstep/base/words.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace lockstep::base {
namespace {

void add_range(std::string& text, std::string_view separator, int first, int last) {
  if (!text.empty()) text += separator;
  text += last > first ? fmt::format("{}-{}", first, last) : fmt::format("{}", first);
}

}  // namespace

std::string name_ranks(std::span<const int> ranks, std::size_t most) {
  std::string text;
  for (const int rank : ranks.first(std::min(ranks.size(), most))) text += fmt::format("{}, ", rank);
  if (ranks.size() > most) {
    text += "...";
  } else if (!ranks.empty()) {
    text.resize(text.size() - 2);
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

std::string name_rank_ranges(std::span<const int> ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + to_ranges({ranks.begin(), ranks.end()}, ", ");
}

std::string name_ranks_without(const std::set<int>& present, int ranks) {
  std::string text;
  int missing = 0, next = 0;
  const auto leave_out = [&](int end) {
    if (end > next) add_range(text, ", ", next, end - 1);
    missing += std::max(end - next, 0);
  };
  for (auto rank = present.begin(); rank != present.end() && *rank < ranks; ++rank) {
    leave_out(*rank);
    next = *rank + 1;
  }
  leave_out(ranks);
  if (missing == 0) return "";
  return (missing == 1 ? "rank " : "ranks ") + text;
}

std::string to_ranges(std::vector<int> numbers, std::string_view separator) {
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    add_range(text, separator, numbers[i], numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string duration(std::uint64_t nanoseconds) {
  const double milliseconds = static_cast<double>(nanoseconds) / 1e6;
  const std::uint64_t seconds = nanoseconds / 1'000'000'000 + (nanoseconds / 500'000'000) % 2;
  if (milliseconds < 9.95) return fmt::format("{:.1f} ms", milliseconds);
  if (milliseconds < 999.5) return fmt::format("{:.0f} ms", milliseconds);
  if (milliseconds < 59'950) return fmt::format("{:.1f} s", milliseconds / 1000);
  if (seconds < 3600) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {} min", seconds / 3600, seconds / 60 % 60);
}

std::string exact_duration(std::chrono::nanoseconds time) {
  const std::int64_t milliseconds = std::chrono::ceil<std::chrono::milliseconds>(time).count();
  return milliseconds % 1000 == 0 ? fmt::format("{} s", milliseconds / 1000)
                                  : fmt::format("{} ms", milliseconds);
}

std::string counted(std::int64_t count, std::string_view noun, std::string_view plural) {
  if (count == 1) return fmt::format("1 {}", noun);
  return plural.empty() ? fmt::format("{} {}s", count, noun) : fmt::format("{} {}", count, plural);
}

std::string host_name() {
  std::array<char, 256> name{};
  const bool is_known = ::gethostname(name.data(), name.size() - 1) == 0 && name.front() != '\0';
  return is_known ? name.data() : "localhost";
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

}  // namespace lockstep::base
