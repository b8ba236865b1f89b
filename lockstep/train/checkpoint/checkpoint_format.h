// The bytes of a checkpoint file: see docs/checkpoint_format.md for the layout, which is final. Here it is as
// a value, encoded and decoded without touching a file or a tensor. What is decoded comes from outside: every
// length is checked against what is there before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/train/checkpoint/sha256.h"

namespace lockstep {

/// The numbers are the format's.
enum class EntryKind : std::uint8_t { parameter = 0, buffer = 1, optimizer = 2 };

struct CheckpointEntry {
  EntryKind kind = EntryKind::parameter;
  std::uint8_t type = 0;  ///< a number of docs/checkpoint_format.md: see element_bytes()
  std::string name;       ///< of a tensor as in named_parameters(); of an optimizer its class
  std::vector<std::uint64_t> shape{};
  std::uint64_t offset = 0;  ///< in the file; encode() sets it
  std::uint64_t bytes = 0;
  Sha256 checksum{};

  /// As in messages: "parameter fc.weight".
  std::string label() const;
};

struct CheckpointHeader {
  std::uint64_t epoch = 0;
  std::map<std::string, std::string> metadata{};
  std::vector<CheckpointEntry> entries{};
  std::uint64_t file_bytes = 0;  ///< encode() sets it
};

inline constexpr std::size_t checkpoint_fixed_bytes = 80;
inline constexpr std::size_t checkpoint_alignment = 64;
inline constexpr std::uint64_t checkpoint_max_header_bytes = std::uint64_t{256} << 20;

/// 0 for a number that is no type.
std::size_t element_bytes(std::uint8_t type);

/// Sets every entry's offset and file_bytes, and returns the header's bytes.
/// Throws Error{invalid_argument} if a name, a number of dimensions or the whole is too long for the format.
std::vector<std::byte> encode(CheckpointHeader& header);

/// The header's bytes with the offsets and lengths that it has, whatever they are. encode() does this last.
std::vector<std::byte> encode_as_it_is(const CheckpointHeader& header);

/// How long the header is, from the file's first bytes (`start`: checkpoint_fixed_bytes of them, or all there
/// are). `file_bytes` is the file's true size, `file` its name in messages. The result is at most file_bytes
/// and checkpoint_max_header_bytes. Throws Error: corrupt_data; unsupported, if it is of a later version.
std::size_t header_bytes(std::span<const std::byte> start, std::uint64_t file_bytes, std::string_view file);

/// `bytes` are header_bytes() many. What it returns is consistent: entries lie one after the other inside the
/// file, and each is as long as its type and shape say. Throws Error{corrupt_data} with file, offset,
/// expected and found.
CheckpointHeader decode(std::span<const std::byte> bytes, std::uint64_t file_bytes, std::string_view file);

/// Throws Error{corrupt_data}: "<file>: at byte <offset> expected <expected>, found <found>; ...".
[[noreturn]] void throw_corrupt_checkpoint(std::string_view file, std::uint64_t offset,
                                           const std::string& expected, const std::string& found);

}  // namespace lockstep
