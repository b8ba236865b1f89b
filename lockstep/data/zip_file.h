// Reads files out of a zip archive that came from somewhere: nothing in it is believed before it has been
// held against the archive's true size, no two files share a byte, and every content is checked against its
// checksum. Compressed files and archives with something behind their end are not read: torch makes none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/data/zip_layout.h"

namespace lockstep {

inline constexpr std::uint64_t zip_most_entries = std::uint64_t{1} << 18;
inline constexpr std::uint64_t zip_most_directory_bytes = std::uint64_t{64} << 20;

class ZipFile {
 public:
  struct Entry : ZipEntry {
    std::uint16_t flags = 0;
    std::uint16_t method = 0;
    std::uint64_t limit = 0;  ///< the content ends there at the latest
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  /// Reads the directory. Throws Error: as InputFile; corrupt_data (file, offset, expected, found);
  /// unsupported (more entries than zip_most_entries, or a directory longer than zip_most_directory_bytes).
  explicit ZipFile(InputFile file);

  const std::string& name() const { return file_.name(); }
  /// By name. All contents together are at most as long as the archive.
  const Entries& entries() const { return entries_; }

  /// The content of one of entries(). REQUIRES: as many bytes as it has.
  /// Throws Error: as InputFile; corrupt_data if its header or its checksum is wrong; unsupported if it is
  /// compressed or encrypted.
  void read(const Entry& entry, std::span<std::byte> bytes) const;
  std::vector<std::byte> read(const Entry& entry) const;

 private:
  struct Directory {
    std::uint64_t offset = 0, bytes = 0, entries = 0;
  };
  Directory find_directory() const;
  void add_entry(std::span<const std::byte> record, std::uint64_t offset);
  void forbid_overlaps(std::uint64_t end);
  [[noreturn]] void refuse(std::uint64_t offset, const std::string& expected, const std::string& found) const;

  InputFile file_;
  Entries entries_;
};

}  // namespace lockstep
