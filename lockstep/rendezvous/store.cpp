#include "lockstep/rendezvous/store.h"

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep::detail {

void require_key(const std::string& key, const StoreLimits& limits) {
  if (!key.empty() && key.size() <= limits.key_bytes) return;
  throw_invalid_argument("store key " + base::quote(key) + " has " + std::to_string(key.size()) +
                         " bytes; a key has 1 to " + std::to_string(limits.key_bytes));
}

void require_value(const std::string& key, std::size_t value_bytes, const StoreLimits& limits) {
  if (value_bytes <= limits.value_bytes) return;
  throw_invalid_argument("store value of " + base::quote(key) + " has " + std::to_string(value_bytes) +
                         " bytes; a value has at most " + std::to_string(limits.value_bytes));
}

void throw_full(const std::string& what, std::size_t limit) {
  throw_invalid_argument("store " + what + ": the store is full (" + std::to_string(limit) +
                         " bytes of all that it holds); erase what is done with");
}

void throw_missing(std::span<const std::string> keys) {
  std::string names;
  for (const std::string& key : keys) names += (names.empty() ? "" : ", ") + base::quote(key);
  throw Error(ErrorCode::timeout, "store: the deadline passed before anybody had set " + names);
}

}  // namespace lockstep::detail
