// Public sets of images (MNIST, Fashion-MNIST, the digits of script/make-digits) come as IDX files: a short
// header and one big-endian array. They arrive truncated, still compressed or lying about their size, so the
// header is checked against the file's true size before anything is allocated or read.
//
//   byte 0      00 00          always
//   byte 2      type           08 u8, 09 i8, 0b i16, 0c i32, 0d f32, 0e f64
//   byte 3      d              number of dimensions, here 1 to 8
//   byte 4      u32 × d        sizes, outermost first, big-endian, none of them 0
//   byte 4+4d   elements       big-endian, row-major, up to the end of the file
//
// A record is what one index of the outermost dimension selects: an image, a label.
//
// Every function that opens a file throws Error: system if it cannot be opened or read, invalid_argument if
// it is no regular file (a FIFO is refused, not waited for), corrupt_data if it is damaged, naming file,
// offset, what was expected and what was found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file.h"

namespace lockstep {

/// The numbers are the format's.
enum class IdxType : std::uint8_t { u8 = 0x08, i8 = 0x09, i16 = 0x0b, i32 = 0x0c, f32 = 0x0d, f64 = 0x0e };

/// Bytes of one element; 0 for a number that is no IdxType.
std::size_t size_of(IdxType type);
std::string_view to_string(IdxType type);

inline constexpr std::size_t idx_max_dimensions = 8;

struct IdxHeader {
  IdxType type = IdxType::u8;
  std::vector<std::size_t> shape;  ///< outermost first; 1 to idx_max_dimensions sizes, each 1 to 2^32 - 1

  std::size_t records() const { return shape.front(); }
  std::size_t record_elements() const;
  std::size_t elements() const { return records() * record_elements(); }
  std::size_t data_offset() const { return 4 + 4 * shape.size(); }
};

struct IdxArray {
  IdxType type = IdxType::u8;
  std::vector<std::size_t> shape;
  std::vector<std::byte> data;  ///< row-major, in this machine's byte order

  /// Number of elements.
  std::size_t size() const { return data.size() / size_of(type); }
};

/// Checks a header. `start` is the file's first bytes: all of them, or at least 4 + 4 × idx_max_dimensions;
/// `file_bytes` is the size of the whole file, `name` stands in messages. What it returns is consistent:
/// data_offset() + elements() × size_of(type) is file_bytes, without overflow. Throws Error{corrupt_data}.
IdxHeader parse_idx_header(std::span<const std::byte> start, std::uint64_t file_bytes, std::string_view name);

/// Reads and checks the header, and nothing else of the file.
IdxHeader read_idx_header(const std::filesystem::path& path);

/// Reads a whole file.
IdxArray read_idx(const std::filesystem::path& path);

/// Writes beside `path`, syncs and renames: a reader sees the old file or the new one, whole.
/// Throws Error: invalid_argument if `array` is no IDX array or its data does not fill its shape; system.
void write_idx(const std::filesystem::path& path, const IdxArray& array);

/// An IDX file read a record at a time: only the pages of the records that are asked for come from the disk,
/// which is what a rank wants that trains on its shard, and the system keeps them for all processes. Thread
/// safety: const functions may be called at the same time. A file that is replaced (renamed over) meanwhile
/// is read on as it was; one that is shortened in place is Error{corrupt_data}. Cost: a pread(2) for each
/// record.
class IdxFile {
 public:
  explicit IdxFile(const std::filesystem::path& path);

  const IdxHeader& header() const { return header_; }
  std::size_t size() const { return header_.records(); }

  /// Record `i` as it stands in the file, big-endian. Throws Error: invalid_argument if there is no such
  /// record; corrupt_data, system.
  std::vector<std::byte> record(std::size_t i) const;

  /// Converts record `i`, of any type, into `out`, which has header().record_elements() places. Values that a
  /// float cannot hold are rounded; u8, i8 and i16 are exact. Throws as record() does.
  void decode(std::size_t i, std::span<float> out) const;
  /// The same, exact, for integer types. Throws Error{invalid_argument} also for f32 and f64.
  void decode(std::size_t i, std::span<std::int64_t> out) const;
  /// Record `i` of a file of labels. Throws as decode() does, and Error{corrupt_data} (file, offset, record,
  /// label) for one that is not in 0…classes-1; classes 0: any is taken.
  std::int64_t label(std::size_t i, std::size_t classes = 0) const;

 private:
  void read_record(std::size_t i, std::span<std::byte> out) const;
  std::size_t record_bytes() const;
  template <class To>
  void decode_record(std::size_t i, std::span<To> out) const;

  InputFile file_;
  IdxHeader header_;
};

/// The two files of a labelled set of images.
struct IdxPair {
  std::filesystem::path images;
  std::filesystem::path labels;
};

/// Finds "<prefix>-images-idx3-ubyte" and "<prefix>-labels-idx1-ubyte", as MNIST names them ("train", "t10k",
/// "test"), or the same names with a dot before "idx". Reads both headers: labels have one dimension, and as
/// many records as there are images. Throws Error: invalid_argument with the names it looked for;
/// corrupt_data if they do not fit.
IdxPair find_idx_pair(const std::filesystem::path& prefix);

}  // namespace lockstep
