// Reads what people may have written as JSON, with their mistakes named: what is wrong, and where. Every function throws
// Error{invalid_argument}.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::base {

/// All of `text`. Where it is no JSON, the error says so, and `advice`.
nlohmann::json parse_json(const std::string& text, std::size_t most_bytes, const std::string& advice);

const nlohmann::json& member(const nlohmann::json& object, const char* name);
std::string text_in(const nlohmann::json& object, const char* name);
std::uint64_t number_in(const nlohmann::json& object, const char* name, std::uint64_t least,
                        std::uint64_t most);
/// Any number, of which there may be a part.
double real_in(const nlohmann::json& object, const char* name, double least, double most);
const nlohmann::json& list_in(const nlohmann::json& object, const char* name);
/// REQUIRES: `value` is an object, and "format" is among its members.
void require_format(const nlohmann::json& value, const char* format);
/// Names the first member that is none of these: a mistyped one would be left out silently.
void require_known(const nlohmann::json& object, std::initializer_list<const char*> names);

/// Adds where a mistake is to what it is.
template <class Parse>
auto within(const std::string& place, Parse parse) {
  try {
    return parse();
  } catch (const Error& error) {
    throw_invalid_argument(place + ": " + error.what());
  }
}

}  // namespace lockstep::base
