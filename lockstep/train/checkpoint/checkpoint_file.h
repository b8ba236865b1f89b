// A checkpoint with what it holds: written in one go, and read entry by entry, never more than was asked for.
// The header alone, as bytes, is checkpoint_format.h.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/train/checkpoint/checkpoint_format.h"
#include "lockstep/train/replicas/named_tensor.h"

namespace lockstep {

/// The format's number of a type; nullopt if a checkpoint cannot hold it.
std::optional<std::uint8_t> checkpoint_type(torch::ScalarType type);
/// The same of an item. Throws Error{unsupported} for a type that a checkpoint cannot hold.
std::uint8_t type_number(const NamedTensor& item);
/// The inverse, of an entry that was decoded.
torch::ScalarType type_of(const CheckpointEntry& entry);

/// Entries and their contents on the way out.
class CheckpointImage {
 public:
  explicit CheckpointImage(CheckpointHeader header) : header_(std::move(header)) {}

  /// `entry` has kind, type, name and shape. `content` is borrowed until write() is done.
  void add(CheckpointEntry entry, std::span<const std::byte> content);
  /// The whole checkpoint, in pieces, in order. Throws what encode() and `out` do. Call once.
  void write(const std::function<void(std::span<const std::byte>)>& out);

 private:
  CheckpointHeader header_;
  std::vector<std::span<const std::byte>> contents_;
};

/// A file whose header has been checked. `kind` stands in messages of what cannot be opened.
/// Throws Error: as InputFile, header_bytes() and decode().
class CheckpointFile {
 public:
  CheckpointFile(const std::filesystem::path& path, std::string kind);

  const CheckpointHeader& header() const { return header_; }
  const std::string& name() const { return file_.name(); }

  /// Throws Error{corrupt_data} unless every byte is as it was written.
  void check_all() const;
  /// An entry's content. Throws Error{corrupt_data} unless it is as it was written.
  std::vector<std::byte> checked(const CheckpointEntry& entry) const;
  /// The same, of an entry that has been checked. `bytes` are as many as the entry has.
  void read(const CheckpointEntry& entry, std::span<std::byte> bytes) const {
    file_.read(entry.offset, bytes);
  }

 private:
  void check(const CheckpointEntry& entry, std::uint64_t after) const;
  void require_checksum(const CheckpointEntry& entry, const Sha256& found) const;

  InputFile file_;
  CheckpointHeader header_;
  std::uint64_t header_bytes_ = 0;
};

}  // namespace lockstep
