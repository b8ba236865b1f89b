// A .pth file as Python's torch.save writes state dicts, since torch 1.6: a zip archive with a pickle that
// says what there is, and a file for each storage. What is read and written, and what is not, is in
// docs/pth_files.md.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/pth.h"
#include "lockstep/data/zip_file.h"

namespace lockstep {

/// A file whose index has been read, and found to agree with what else is in the file.
class PthFile {
 public:
  /// With a `key`, the dict under it. Memory: that of the index. Throws Error: as InputFile, ZipFile and
  /// decode_pth_pickle(); unsupported, saying what to do (a file of before torch 1.6, of TorchScript, of a
  /// machine with the other byte order).
  explicit PthFile(const std::filesystem::path& path, const std::string& key = "");

  const std::string& name() const { return zip_.name(); }
  /// All storages together are at most as long as the file.
  const PthIndex& index() const { return index_; }
  /// The content of storage `number`. REQUIRES: as many bytes as it has.
  /// Throws Error: as ZipFile::read(); corrupt_data if a bool is neither 0 nor 1.
  void read(std::size_t number, std::span<std::byte> bytes) const;

 private:
  const ZipFile::Entry* find(const std::string& name) const;
  std::string short_text(const std::string& name) const;
  void check_archive() const;

  ZipFile zip_;
  std::string folder_;  ///< in which everything lies, with a slash
  PthIndex index_;
  std::vector<const ZipFile::Entry*> contents_;
};

/// The content of storage `number`, valid until the next call.
using PthContent = std::function<std::span<const std::byte>(std::size_t number)>;

/// Writes a file that torch.load(path, weights_only=True) reads, whole or not at all; the same content has
/// the same bytes. REQUIRES: an index as decode_pth_pickle() returns, contents as long as it says. Throws
/// Error: as FileReplacement; what `content` throws passes through, and nothing is written.
void write_pth_file(const std::filesystem::path& path, const PthIndex& index, const PthContent& content);

}  // namespace lockstep
