// Writing a checkpoint may be killed at any moment, and what was there before must survive it. So the bytes
// go into a file of their own beside the checkpoint, reach the disk, and only then take its name: a reader
// finds the old file or the new one, whole.
//
//   model.ckpt.tmp-8121-5f3a9c01   made, locked (flock) -> written -> synced
//   model.ckpt                     renamed to this -> folder synced
//
// The lock goes with its process: a temporary that can be locked was left behind by one that is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "lockstep/base/unique_fd.h"

namespace lockstep {

/// Every function throws Error{system} with the path and what the system said.
class CheckpointWriter {
 public:
  /// Makes the temporary. A missing folder is not made, but named.
  explicit CheckpointWriter(std::filesystem::path path);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  /// Without commit() the temporary goes, and the checkpoint is as it was.
  ~CheckpointWriter();

  void write(std::span<const std::byte> bytes);
  /// Bytes written so far.
  std::uint64_t size() const { return size_; }
  /// To the disk, then in place.
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  UniqueFd fd_;
  std::uint64_t size_ = 0;
};

/// An existing file. Throws Error: system if it cannot be opened, invalid_argument if it is no regular file.
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  /// Fills `bytes` from `offset` on. Throws Error: system; corrupt_data if the file ends before.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  std::uint64_t size_ = 0;
};

/// Removes the temporaries that processes which are gone have left beside the checkpoint `path`. Never
/// throws: what cannot be removed stays.
void remove_leftovers(const std::filesystem::path& path) noexcept;

}  // namespace lockstep
