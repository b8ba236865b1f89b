// CIFAR-10 in its binary version: 60,000 colour images of 32 × 32 in ten classes, in files of records that
// all have the same size, without a header. A record is read when it is asked for, so a rank reads its share
// and no more, and the system keeps what was read for all processes of the host.
//
//   byte 0      label          0 to 9
//   byte 1      u8 × 1024      red, row by row from the top
//   byte 1025   u8 × 1024      green
//   byte 2049   u8 × 1024      blue; byte 3073 is the next record's label
//
// Source: Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html, "CIFAR-10 binary version".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "lockstep/base/file.h"

namespace lockstep {

inline constexpr std::size_t cifar10_classes = 10;

/// As it stands in the file.
struct Cifar10Record {
  std::uint8_t label = 0;
  std::array<std::uint8_t, 3072> pixels{};  ///< [3, 32, 32]
};
static_assert(sizeof(Cifar10Record) == 3073);

/// One file. Thread safety: const functions may be called at the same time.
class Cifar10File {
 public:
  /// Any number of records, but not none. Throws Error: system if it cannot be opened, invalid_argument if it
  /// is no regular file, corrupt_data (file, offset, expected, found) if it is empty or ends inside a record.
  explicit Cifar10File(const std::filesystem::path& path);

  std::size_t size() const { return static_cast<std::size_t>(file_.size() / sizeof(Cifar10Record)); }

  /// Cost: one pread(2) of 3073 bytes. Throws Error: invalid_argument if there is no such record;
  /// corrupt_data for a label above 9, or a file that has become shorter; system.
  Cifar10Record read(std::size_t i) const;

 private:
  InputFile file_;
};

enum class Cifar10Part { train, test };

/// One part of the set: the records of its files, one file after the other.
class Cifar10Files {
 public:
  /// `folder` holds data_batch_1.bin to data_batch_5.bin (train) or test_batch.bin (test). Throws as
  /// Cifar10File; invalid_argument where a file is missing says where to get it and what to put where.
  Cifar10Files(const std::filesystem::path& folder, Cifar10Part part);

  std::size_t size() const { return size_; }
  /// As Cifar10File::read().
  Cifar10Record read(std::size_t i) const;

 private:
  std::vector<Cifar10File> files_;
  std::size_t size_ = 0;
};

}  // namespace lockstep
