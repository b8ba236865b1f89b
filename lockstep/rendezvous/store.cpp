#include "lockstep/rendezvous/store.h"

#include <array>
#include <cstdio>

#include "lockstep/base/error.h"

namespace lockstep::detail {

std::string quoted(const std::string& key) {
  constexpr std::size_t shown = 200;
  std::string text = "\"";
  for (const char c : key.substr(0, shown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f && c != '"' && c != '\\') {
      text += c;
      continue;
    }
    std::array<char, 8> escape{};
    (void)std::snprintf(escape.data(), escape.size(), "\\x%02x", byte);
    text += escape.data();
  }
  return text + (key.size() > shown ? "…\"" : "\"");
}

void require_key(const std::string& key, const StoreLimits& limits) {
  if (!key.empty() && key.size() <= limits.key_bytes) return;
  throw_invalid_argument("store key " + quoted(key) + " has " + std::to_string(key.size()) +
                         " bytes; a key has 1 to " + std::to_string(limits.key_bytes));
}

void require_value(const std::string& key, std::size_t value_bytes, const StoreLimits& limits) {
  if (value_bytes <= limits.value_bytes) return;
  throw_invalid_argument("store value of " + quoted(key) + " has " + std::to_string(value_bytes) +
                         " bytes; a value has at most " + std::to_string(limits.value_bytes));
}

void throw_missing(std::span<const std::string> keys) {
  std::string names;
  for (const std::string& key : keys) names += (names.empty() ? "" : ", ") + quoted(key);
  throw Error(ErrorCode::timeout, "store: the deadline passed before anybody had set " + names);
}

}  // namespace lockstep::detail
