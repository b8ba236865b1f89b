// Files that are read as a whole and written as a whole. Writing may be killed at any moment, and what was
// there before must survive it. So the bytes go into a file of their own beside the one they will replace,
// reach the disk, and only then take its name: a reader finds the old file or the new one, whole.
//
//   model.ckpt.tmp-8121-5f3a9c01   made, locked (flock) -> written -> synced
//   model.ckpt                     renamed to this -> folder synced
//
// The lock goes with its process: a temporary that can be locked was left behind by one that is gone. On a
// file system without locks a temporary of a kill stays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "lockstep/base/mapping.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep {

/// A new content for `path`, or for what it leads to where it is a link. Every function throws Error{system}
/// with the path, what the system said and what to do; the constructor also invalid_argument (no file name).
class FileReplacement {
 public:
  /// Makes the temporary, and removes those that were left behind. A missing folder is not made, but named;
  /// what is there and no regular file stays.
  /// `kind` ("checkpoint") stands in messages.
  FileReplacement(std::filesystem::path path, std::string kind);
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;
  /// Without commit() the temporary goes, and the file is as it was.
  ~FileReplacement();

  void write(std::span<const std::byte> bytes);
  /// Bytes written so far.
  std::uint64_t size() const { return size_; }
  /// To the disk, but not yet in place.
  void sync();
  /// To the disk, then in place. Returns the file, still locked: while it is open, remove_unless_locked()
  /// leaves it alone.
  UniqueFd commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_;
  std::string kind_;
  std::filesystem::path temporary_;
  UniqueFd fd_;
  std::uint64_t size_ = 0;
};

/// Onto what `to` names, if it is there; both lie in one folder. On the disk afterwards. `kind` as above. Throws Error{system}.
void move_file(const std::filesystem::path& from, const std::filesystem::path& to, const std::string& kind);

/// Makes a folder and those above it, if they are missing. `kind` as above. Throws Error{system}.
void make_folders(const std::filesystem::path& path, const std::string& kind);

/// Removes the temporaries that processes which are gone have left beside the file `path`. Never throws: what
/// cannot be removed stays.
void remove_leftovers(const std::filesystem::path& path) noexcept;

/// Removes the regular file `file` unless somebody has it locked, as a FileReplacement and what its commit()
/// returns do. `is_unwanted` is asked last, under a lock of this function's own. Never throws: what cannot be
/// removed stays.
void remove_unless_locked(const std::filesystem::path& file,
                          const std::function<bool()>& is_unwanted) noexcept;

/// Where `path` leads; itself unless it is a link. Also a link to a file that is not there yet is followed.
std::filesystem::path follow_links(std::filesystem::path path);

/// `path` with this content, whole or as it was: a FileReplacement of it. Throws as that does.
void write_file(const std::filesystem::path& path, const std::string& kind, const std::string& text);

/// An existing file. Throws Error: system if it cannot be opened, invalid_argument if it is no regular file.
class InputFile {
 public:
  InputFile(const std::filesystem::path& path, std::string kind);

  const std::string& name() const { return name_; }
  std::uint64_t size() const { return size_; }
  /// Fills `bytes` from `offset` on. Throws Error: system; corrupt_data if the file ends before, which is to
  /// say that it has shrunk where size() was asked first.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

  /// Its beginning, up to `most` bytes. Throws as read() does.
  std::string text(std::uint64_t most = UINT64_MAX) const;

  /// The whole file in memory, for reading: pages come from the disk when they are first looked at, and all
  /// processes of a host have them in common. Ask require_whole() before looking: a page that the file no
  /// longer has ends the process (SIGBUS). Throws Error: system; corrupt_data for an empty file.
  Mapping map() const;
  /// Throws Error{corrupt_data} if the file has become shorter since it was opened. Cost: one fstat(2).
  void require_whole() const;

 private:
  [[noreturn]] void throw_shortened(std::uint64_t offset, std::uint64_t missing) const;

  std::string name_;
  std::string kind_;
  UniqueFd fd_;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep
