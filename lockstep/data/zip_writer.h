// Writes a zip archive from its first byte to its last, with the checksum of each file before the file. The
// same files have the same bytes: there are no times in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/zip_layout.h"

namespace lockstep {

class ZipWriter {
 public:
  /// `out` gets the archive in pieces, in order; what it throws passes through.
  explicit ZipWriter(std::function<void(std::span<const std::byte>)> out) : out_(std::move(out)) {}

  /// A file of the archive, its content at a multiple of zip_alignment. REQUIRES: names of less than 64 KiB,
  /// each once. Cost: `content` is read twice.
  void add(std::string name, std::span<const std::byte> content);
  /// The directory: call once, at the end.
  void finish();

 private:
  void write(std::span<const std::byte> bytes);

  std::function<void(std::span<const std::byte>)> out_;
  std::vector<ZipEntry> entries_;
  std::uint64_t written_ = 0;
};

}  // namespace lockstep
