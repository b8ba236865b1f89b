#include "lockstep/base/env.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::env {
namespace {

// What text() below may be asked for, beside what tests have for themselves.
constexpr std::string_view prefix = "LOCKSTEP_";
constexpr std::string_view of_tests = "LOCKSTEP_TEST";
constexpr std::string_view ours[] = {"ALGORITHM",
                                     "ARENA_BYTES",
                                     "CONNECTIONS",
                                     "CONTROL_FD",
                                     "CORES",
                                     "ENGINE",
                                     "MPI_LIBRARY",
                                     "NCCL_LIBRARY",
                                     "EXPLAIN_AFTER",
                                     "GPU_PIECE_BYTES",
                                     "GPU_SLICED_FROM",
                                     "IFACE",
                                     "INCARNATION",
                                     "INIT_TIMEOUT",
                                     "INSECURE",
                                     "JOB",
                                     "LOG",
                                     "MACHINE_FILE",
                                     "MAILBOX_BYTES",
                                     "MEETING_DIR",
                                     "METRICS",
                                     "NODE",
                                     "ONE_SHOT_BYTES",
                                     "PORT",
                                     "PROFILE",
                                     "PROFILE_ALL",
                                     "PROFILE_BARRIER",
                                     "PROFILE_RUN",
                                     "PROFILE_SITES",
                                     "RANKS_PER_NODE",
                                     "RECORD_DIR",
                                     "REPORT",
                                     "SECRET_FD",
                                     "SECRET_FILE",
                                     "SEGMENT_BYTES",
                                     "SSH",
                                     "STORE",
                                     "TIMELINE",
                                     "TIMELINE_NAMES",
                                     "TIMELINE_OPERATORS",
                                     "TIMEOUT",
                                     "TUNING_FILE",
                                     "WARN_AFTER",
                                     "WIRE_DTYPE"};

/// Or another program's.
bool is_ours(std::string_view name) {
  return !name.starts_with(prefix) || name.starts_with(of_tests) ||
         std::ranges::find(ours, name.substr(prefix.size())) != std::end(ours);
}

/// Letters to change, add or leave out (Levenshtein).
std::size_t distance(std::string_view one, std::string_view other) {
  std::vector<std::size_t> row(other.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < one.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < other.size(); ++j) {
      const std::size_t changed = diagonal + (one[i] == other[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string quoted(const std::string& what, const std::string& value) { return what + "=\"" + value + "\""; }

}  // namespace

std::int64_t parse_integer(const std::string& what, const std::string& value, std::int64_t lowest,
                           std::int64_t highest) {
  std::int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto [stopped, problem] = std::from_chars(value.data(), end, number);
  if (problem != std::errc() || stopped != end || number < lowest || number > highest) {
    throw_invalid_argument(
        fmt::format("{} is not a whole number from {} to {}", quoted(what, value), lowest, highest));
  }
  return number;
}

std::uint64_t parse_bytes(const std::string& what, const std::string& value) {
  std::uint64_t number = 0;
  const char* end = value.data() + value.size();
  const auto [stopped, problem] = std::from_chars(value.data(), end, number);
  const std::string suffix(stopped, end);
  unsigned shift = 64;
  if (suffix.empty()) shift = 0;
  if (suffix == "K" || suffix == "KiB") shift = 10;
  if (suffix == "M" || suffix == "MiB") shift = 20;
  if (suffix == "G" || suffix == "GiB") shift = 30;
  if (problem != std::errc() || shift == 64 || (number << shift) >> shift != number) {
    throw_invalid_argument(quoted(what, value) +
                           " is not a number of bytes; write for example 67108864 or 64M");
  }
  return number << shift;
}

std::chrono::nanoseconds parse_duration(const std::string& what, const std::string& value) {
  if (value == "off") return std::chrono::nanoseconds::max();
  double number = 0;
  const char* end = value.data() + value.size();
  const auto [stopped, problem] = std::from_chars(value.data(), end, number);
  const std::string suffix(stopped, end);
  double seconds = -1;
  if (suffix.empty() || suffix == "s") seconds = number;
  if (suffix == "ms") seconds = number * 1e-3;
  if (suffix == "us") seconds = number * 1e-6;
  if (suffix == "m") seconds = number * 60;
  if (suffix == "h") seconds = number * 3600;
  if (problem != std::errc() || !std::isfinite(seconds) || seconds < 0 || seconds > 9e9) {
    throw_invalid_argument(quoted(what, value) +
                           " is not a duration; write for example 30s, 500ms, 5m or off");
  }
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

std::optional<std::string> text(const char* name) {
  assert(is_ours(name));
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<std::int64_t> integer(const char* name, std::int64_t lowest, std::int64_t highest) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  return parse_integer(name, *value, lowest, highest);
}

std::optional<bool> flag(const char* name) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  if (*value == "1" || *value == "true" || *value == "yes" || *value == "on") return true;
  if (*value == "0" || *value == "false" || *value == "no" || *value == "off") return false;
  throw_invalid_argument(quoted(name, *value) + " is not a switch; write 1 or 0");
}

std::optional<std::uint64_t> bytes(const char* name) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  return parse_bytes(name, *value);
}

std::optional<std::chrono::nanoseconds> duration(const char* name) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  return parse_duration(name, *value);
}

std::vector<Mistyped> mistyped() {
  std::vector<Mistyped> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    const std::string_view name = line.substr(0, line.find('='));
    if (name.starts_with(prefix) && is_ours(name)) continue;
    for (const std::string_view one : ours) {
      const std::size_t most_wrong = one.size() < 6 ? 1 : 2;
      const std::size_t length = prefix.size() + one.size();
      // Most names are told by their length alone.
      if (name.size() + most_wrong < length || name.size() > length + most_wrong) continue;
      const std::string meant = std::string(prefix) + std::string(one);
      if (distance(name, meant) <= most_wrong) found.push_back({std::string(name), meant});
    }
  }
  return found;
}

}  // namespace lockstep::env
