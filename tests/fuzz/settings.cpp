// Texts that a user writes into the environment, and endpoints, which also travel through the store.
#include <limits>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/socket.h"
#include "tests/fuzz/script.h"

namespace lockstep::fuzz::settings {
namespace {

constexpr const char* name = "LOCKSTEP_X";

/// Each parses a text and returns one that means the same.
using Parser = std::string (*)(const std::string&);

std::string integer(const std::string& text) {
  const std::int64_t number = env::parse_integer(name, text, -5, 70000);
  require(number >= -5 && number <= 70000, "a number is in its range");
  return std::to_string(number);
}

std::string any_integer(const std::string& text) {
  using Limits = std::numeric_limits<std::int64_t>;
  return std::to_string(env::parse_integer(name, text, Limits::min(), Limits::max()));
}

std::string bytes(const std::string& text) { return std::to_string(env::parse_bytes(name, text)); }

std::string duration(const std::string& text) {
  require(env::parse_duration(name, text).count() >= 0, "no duration is negative");
  return text;
}

std::string endpoint(const std::string& text) {
  const Endpoint parsed = Endpoint::parse(text);
  require(!parsed.host.empty(), "an endpoint is somewhere");
  return parsed.to_string();
}

}  // namespace

int run_one(Input input) {
  constexpr Parser parsers[] = {integer, any_integer, bytes, duration, endpoint};
  Script script(input);
  const Parser parse = parsers[script.below(5)];
  std::string written;
  try {
    written = parse(script.text(input.size()));
  } catch (const Error& error) {
    const std::string what = error.what();
    require(error.code() == ErrorCode::invalid_argument, "a wrong text is an invalid argument");
    require(what.starts_with(parse == endpoint ? "endpoint \"" : name), "which is named");
    return 0;
  }
  require(parse(written) == written, "what was read can be written and read again");
  return 0;
}

}  // namespace lockstep::fuzz::settings
