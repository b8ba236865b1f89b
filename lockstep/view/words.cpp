#include "lockstep/view/words.h"

#include <fmt/format.h>

#include "lockstep/topology/topology.h"

namespace lockstep::view {

std::string duration(std::uint64_t nanoseconds) {
  const double milliseconds = static_cast<double>(nanoseconds) / 1e6;
  const std::uint64_t seconds = nanoseconds / 1'000'000'000 + (nanoseconds / 500'000'000) % 2;
  if (milliseconds < 9.95) return fmt::format("{:.1f} ms", milliseconds);
  if (milliseconds < 999.5) return fmt::format("{:.0f} ms", milliseconds);
  if (milliseconds < 59'950) return fmt::format("{:.1f} s", milliseconds / 1000);
  if (seconds < 3600) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {} min", seconds / 3600, seconds / 60 % 60);
}

std::string names(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (const char c : topology::to_ranges(ranks)) text += c == ',' ? ", " : std::string(1, c);
  return text;
}

}  // namespace lockstep::view
