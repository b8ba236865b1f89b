// Ranks that do not know each other yet need one place to meet: to leave an address under a name and to wait
// for somebody else's. A Store is that place, a small map from text to bytes that all ranks see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/deadline.h"

namespace lockstep {

/// What a store accepts. Beyond it is Error{invalid_argument}, and the store stays as it was. Between
/// processes the limits of one key and one value cannot be more than these (docs/wire_formats.md).
struct StoreLimits {
  std::size_t key_bytes = 4096;
  std::size_t value_bytes = std::size_t{64} << 20;
  /// All keys and values together with what they take in memory; in a server also wills, and what clients wait for.
  std::size_t total_bytes = std::size_t{1} << 30;
  /// In a server: requests that arrive and replies that are not fetched, of all clients together.
  std::size_t traffic_bytes = std::size_t{1} << 30;
};

/// A key is 1 to 4096 bytes of any kind, a value 0 to 64 MiB. Each call is atomic: all clients see all
/// changes in one order, and a call that returned is seen by every later call of anybody.
///
/// Thread safety: any number of threads may call anything at once; a waiting call keeps nobody from working.
/// Errors of every call: invalid_argument (limits); where the store is another process also peer_lost (it is
/// gone) and timeout (it does not answer; whether it took the change is then unknown).
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  /// Replaces what was there, and wakes who waits for the key.
  virtual void set(const std::string& key, std::string value) = 0;

  /// The value, as soon as there is one. Error{timeout} names the key. (To look without waiting there is
  /// try_get: an expired deadline may or may not find a value that is there.)
  virtual std::string get(const std::string& key, Deadline deadline) = 0;

  /// The value, if there is one now.
  virtual std::optional<std::string> try_get(const std::string& key) = 0;

  /// Adds to a number kept as decimal text (a missing one is 0) and returns the sum. A value that is no
  /// number, or a sum beyond 64 bits, is Error{invalid_argument} and changes nothing.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;

  /// Sets `desired` if the value is `expected`, and returns the value afterwards. A missing key counts as "".
  /// It succeeded exactly if `desired` comes back and was not there before: choose a `desired` of your own.
  virtual std::string compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) = 0;

  /// Returns when each of the keys has been seen. Error{timeout} names all that are still missing. All keys
  /// of a call have at most 16 MiB, with 4 bytes on top for each.
  virtual void wait(std::span<const std::string> keys, Deadline deadline) = 0;

  /// True if it was there.
  virtual bool erase(const std::string& key) = 0;

  /// Erases all keys that begin with `prefix`, and returns how many there were. Takes as long as there are keys.
  virtual std::int64_t erase_all(const std::string& prefix) = 0;

  /// A last will: if this process ends, or loses the store, while the returned handle lives, `value` is
  /// appended to what `key` has. (Nobody ends before a store that is inside his own process.)
  [[nodiscard]] virtual std::shared_ptr<void> bequeath(const std::string& key, std::string value) = 0;
};

namespace detail {
// For implementations: the errors that all kinds of stores share.
void require_key(const std::string& key, const StoreLimits& limits);
void require_value(const std::string& key, std::size_t value_bytes, const StoreLimits& limits);
[[noreturn]] void throw_missing(std::span<const std::string> keys);
[[noreturn]] void throw_full(const std::string& what, std::size_t limit);
}  // namespace detail

}  // namespace lockstep
