// Python's pickle is a program that builds objects, and what it may call is up to its writer. Here it is read
// as a description: numbers, texts, tuples, lists and dicts become values, a call stays a value that says
// what would be called with what, and nothing is ever run. What the reader was not told to expect is refused
// by name.
//
// Of protocol 2, the opcodes that Python's pickler emits for such values, as torch.save uses it. Source:
// pickletools of Python 3.11.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The one class whose objects are dicts for us, too: torch.save writes state dicts as such.
inline constexpr std::string_view pickle_ordered_dict = "collections.OrderedDict";

enum class PickleKind : std::uint8_t {
  none,
  boolean,
  integer,
  real,
  text,
  tuple,
  list,
  dict,
  global,      ///< a class or function: `text` is "module.name"
  call,        ///< `items` are the global and the tuple of its arguments
  persistent,  ///< something kept outside of the pickle: `items` is the one value that says what
};

/// Values refer to others by their number in Pickle::values; one may be part of several, or of itself.
struct PickleValue {
  PickleKind kind = PickleKind::none;
  bool is_ordered = false;   ///< a dict made as collections.OrderedDict
  std::int64_t integer = 0;  ///< of a boolean 0 or 1
  double real = 0;
  std::string text{};                  ///< as it was written, whether UTF-8 or not
  std::vector<std::uint32_t> items{};  ///< of a dict key, value, key, value, ... in its order
};

struct Pickle {
  std::vector<PickleValue> values{};
  std::uint32_t root = 0;

  const PickleValue& at(std::uint32_t number) const { return values.at(number); }
};

/// What a pickle may name: a function may also be called.
struct PickleGlobal {
  std::string_view name;  ///< "module.name"
  bool is_function = false;
};

inline constexpr std::size_t pickle_most_values = std::size_t{1} << 21;
inline constexpr std::size_t pickle_most_depth = 1000;  ///< of tuples, lists and dicts that are being made

/// Reads a whole pickle. Besides `known` it may name collections.OrderedDict, whose attributes (torch gives
/// it
/// "_metadata") are dropped. `name` stands in messages. Cost: up to 80 bytes for each value and each byte of
/// it that is no text. Throws Error: corrupt_data (offset, expected, found); unsupported (an opcode that is
/// not read; a global that is not known, by its name; more than pickle_most_values values).
Pickle parse_pickle(std::span<const std::byte> bytes, std::string_view name,
                    std::span<const PickleGlobal> known);

/// As in messages: "an int", "a dict of 3".
std::string describe(const PickleValue& value);

}  // namespace lockstep
