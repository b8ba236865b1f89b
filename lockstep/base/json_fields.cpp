#include "lockstep/base/json_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "lockstep/base/quote.h"

namespace lockstep::base {
namespace {

using nlohmann::json;

/// Never a list or an object, which may be large, and as deep as it is large.
std::string shown(const json& value) {
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  return value.is_structured() ? "an " + std::string(value.type_name()) : value.dump();
}

}  // namespace

json parse_json(const std::string& text, std::size_t most_bytes, const std::string& advice) {
  if (text.size() > most_bytes) throw_invalid_argument("is too long");
  json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) throw_invalid_argument("is no JSON; " + advice);
  return value;
}

const json& member(const json& object, const char* name) {
  if (!object.is_object()) throw_invalid_argument("is no object with \"" + std::string(name) + "\"");
  const auto found = object.find(name);
  if (found == object.end()) throw_invalid_argument("lacks \"" + std::string(name) + "\"");
  return *found;
}

std::string text_in(const json& object, const char* name) {
  const json& value = member(object, name);
  if (!value.is_string()) throw_invalid_argument("\"" + std::string(name) + "\" must be a string");
  return value.get<std::string>();
}

std::uint64_t number_in(const json& object, const char* name, std::uint64_t least, std::uint64_t most) {
  const json& value = member(object, name);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() < least ||
      value.get<std::uint64_t>() > most) {
    throw_invalid_argument(
        fmt::format("\"{}\" must be a whole number from {} to {}, not {}", name, least, most, shown(value)));
  }
  return value.get<std::uint64_t>();
}

double real_in(const json& object, const char* name, double least, double most) {
  const json& value = member(object, name);
  if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most)) {
    throw_invalid_argument(
        fmt::format("\"{}\" must be a number from {:g} to {:g}, not {}", name, least, most, shown(value)));
  }
  return value.get<double>();
}

const json& list_in(const json& object, const char* name) {
  const json& value = member(object, name);
  if (!value.is_array()) throw_invalid_argument("\"" + std::string(name) + "\" must be a list");
  return value;
}

void require_format(const json& value, const char* format) {
  if (const std::string found = text_in(value, "format"); found != format) {
    throw_invalid_argument("\"format\" is " + quote(found) + ", not " + quote(format));
  }
}

void require_known(const json& object, std::initializer_list<const char*> names) {
  for (const auto& item : object.items()) {
    const std::string& name = item.key();
    const auto is_it = [&](const char* known) { return name == known; };
    if (std::ranges::any_of(names, is_it)) continue;
    std::string all;
    for (const char* known : names) all += (all.empty() ? "" : ", ") + std::string(known);
    throw_invalid_argument(quote(name) + " is no member here; there are " + all);
  }
}

}  // namespace lockstep::base
