// Environment variables, read with their mistakes named: a variable that is set but makes no sense is an
// error, never silently the default.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::env {

/// Unset and empty are the same: nullopt.
std::optional<std::string> text(const char* name);

/// Throws invalid_argument naming variable, value and the accepted range unless it is a whole number in it.
std::optional<std::int64_t> integer(const char* name, std::int64_t lowest, std::int64_t highest);

/// "1", "true", "yes", "on" and their opposites.
std::optional<bool> flag(const char* name);

/// A number of bytes with an optional suffix K, M, G (powers of 1024): "64M".
std::optional<std::uint64_t> bytes(const char* name);

/// "30s", "500ms", "5m", plain numbers are seconds; "off" is duration::max().
std::optional<std::chrono::nanoseconds> duration(const char* name);

/// The parsers behind the above, for flags and files. Throw invalid_argument beginning with `what`.
std::int64_t parse_integer(const std::string& what, const std::string& value, std::int64_t lowest,
                           std::int64_t highest);
std::uint64_t parse_bytes(const std::string& what, const std::string& value);
std::chrono::nanoseconds parse_duration(const std::string& what, const std::string& value);

/// Variables of this process that are named almost as one of ours: {"LOCKSTEP_TIMOUT", "LOCKSTEP_TIMEOUT"}.
struct Mistyped {
  std::string name, meant;
};
std::vector<Mistyped> mistyped();

}  // namespace lockstep::env
