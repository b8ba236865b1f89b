#include "lockstep/data/idx.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <system_error>

#include "lockstep/base/byte_codec.h"
#include "lockstep/base/error.h"
#include "lockstep/data/corrupt.h"

namespace lockstep {
namespace {

constexpr std::size_t longest_header_bytes = 4 + 4 * idx_max_dimensions;

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(byte));
    text += (text.empty() ? "" : " ") + std::string(digits);
  }
  return text;
}

std::string describe(const IdxHeader& header) {
  std::string text(to_string(header.type));
  for (std::size_t i = 0; i < header.shape.size(); ++i) {
    text += (i == 0 ? " " : " × ") + std::to_string(header.shape[i]);
  }
  return text;
}

/// From the file's byte order to this machine's, or back.
void swap_elements(std::span<std::byte> data, std::size_t element_bytes) {
  if (std::endian::native == std::endian::big || element_bytes == 1) return;
  for (auto at = data.begin(); at != data.end(); at += static_cast<std::ptrdiff_t>(element_bytes)) {
    std::reverse(at, at + static_cast<std::ptrdiff_t>(element_bytes));
  }
}

/// The shape is still all zeros, but has its length.
IdxHeader parse_type_and_dimensions(std::span<const std::byte> start, std::string_view name) {
  if (start.size() < 4) {
    throw_corrupt(name, 0, "a header of at least 8 bytes", fmt::format("{} bytes in all", start.size()),
                  "the file is truncated: get it again");
  }
  if (start[0] == std::byte{0x1f} && start[1] == std::byte{0x8b}) {
    throw_corrupt(name, 0, "IDX (00 00)", "gzip (1f 8b)", "decompress it with gunzip");
  }
  if (start[0] != std::byte{0} || start[1] != std::byte{0}) {
    throw_corrupt(name, 0, "IDX (00 00)", hex(start.first(2)),
                  "this is another kind of file: check its name");
  }

  const auto type = static_cast<IdxType>(start[2]);
  if (size_of(type) == 0) {
    throw_corrupt(name, 2, "a type (08, 09, 0b, 0c, 0d or 0e)", hex(start.subspan(2, 1)),
                  "this is no IDX file, or it is damaged: get it again");
  }
  const auto dimensions = std::to_integer<std::size_t>(start[3]);
  if (dimensions < 1 || dimensions > idx_max_dimensions) {
    throw_corrupt(name, 3, fmt::format("1 to {} dimensions", idx_max_dimensions), std::to_string(dimensions),
                  "this is no IDX file, or it is damaged: get it again");
  }
  return {type, std::vector<std::size_t>(dimensions)};
}

IdxHeader read_header(const InputFile& file) {
  std::byte start[longest_header_bytes];
  const std::span<std::byte> bytes(start, std::min<std::uint64_t>(file.size(), longest_header_bytes));
  file.read(0, bytes);
  return parse_idx_header(bytes, file.size(), file.name());
}

void check_for_writing(const IdxArray& array, const std::string& name) {
  const std::size_t element_bytes = size_of(array.type);
  if (element_bytes == 0) throw_invalid_argument("cannot write " + name + ": its type is none of IDX's");
  if (array.shape.empty() || array.shape.size() > idx_max_dimensions) {
    throw_invalid_argument(fmt::format("cannot write {}: expected 1 to {} dimensions, found {}", name,
                                       idx_max_dimensions, array.shape.size()));
  }
  std::size_t bytes = element_bytes;
  bool fits = true;
  for (const std::size_t size : array.shape) {
    fits = fits && size >= 1 && size <= std::numeric_limits<std::uint32_t>::max() &&
           !__builtin_mul_overflow(bytes, size, &bytes);
  }
  if (!fits || bytes != array.data.size()) {
    throw_invalid_argument(fmt::format("cannot write {}: expected data that fills {}, found {} bytes", name,
                                       describe({array.type, array.shape}), array.data.size()));
  }
}

template <class From, class To>
void convert(std::span<const std::byte> record, std::span<To> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): i8 holds numbers, not characters.
    out[i] = static_cast<To>(base::big_endian_at<From>(record, i * sizeof(From)));
  }
}

std::optional<std::filesystem::path> first_file(const std::vector<std::filesystem::path>& names) {
  for (const auto& name : names) {
    std::error_code error;
    if (std::filesystem::exists(name, error)) return name;
    if (error) throw_system("cannot look for " + name.string(), error.value());
  }
  return std::nullopt;
}

std::filesystem::path find_one(const std::filesystem::path& prefix, const std::string& what,
                               const std::string& kind) {
  const std::string stem = prefix.string() + "-" + what;
  const std::vector<std::filesystem::path> names = {stem + "-" + kind, stem + "." + kind};
  if (const auto found = first_file(names)) return *found;
  std::string compressed;
  if (const auto gz = first_file({names[0].string() + ".gz", names[1].string() + ".gz"})) {
    compressed = "; there is " + gz->string() + ": decompress it with gunzip";
  }
  throw_invalid_argument(
      "no " + what + " at " + prefix.string() + ": expected " + names[0].string() + " or " +
      names[1].string() + ", found neither" +
      (compressed.empty()
           ? "; check the path (Lockstep's script/make-digits makes the digits in build/digits)"
           : compressed));
}

}  // namespace

std::size_t size_of(IdxType type) {
  switch (type) {
    case IdxType::u8:
    case IdxType::i8: return 1;
    case IdxType::i16: return 2;
    case IdxType::i32:
    case IdxType::f32: return 4;
    case IdxType::f64: return 8;
  }
  return 0;
}

std::string_view to_string(IdxType type) {
  switch (type) {
    case IdxType::u8: return "u8";
    case IdxType::i8: return "i8";
    case IdxType::i16: return "i16";
    case IdxType::i32: return "i32";
    case IdxType::f32: return "f32";
    case IdxType::f64: return "f64";
  }
  return "?";
}

std::size_t IdxHeader::record_elements() const {
  std::size_t elements = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) elements *= shape[i];
  return elements;
}

IdxHeader parse_idx_header(std::span<const std::byte> start, std::uint64_t file_bytes,
                           std::string_view name) {
  IdxHeader header = parse_type_and_dimensions(start, name);
  const std::size_t header_bytes = header.data_offset();
  if (start.size() < header_bytes || file_bytes < header_bytes) {
    throw_corrupt(name, 4, fmt::format("{} sizes of 4 bytes", header.shape.size()),
                  fmt::format("{} bytes", start.size() - 4), "the file is truncated: get it again");
  }
  std::uint64_t data_bytes = size_of(header.type);
  bool overflow = false;
  for (std::size_t i = 0; i < header.shape.size(); ++i) {
    header.shape[i] = base::big_endian_at<std::uint32_t>(start, 4 + 4 * i);
    if (header.shape[i] == 0) {
      throw_corrupt(name, 4 + 4 * i, "a size of at least 1", "0",
                    "the file holds no data: make or get it again");
    }
    overflow = __builtin_mul_overflow(data_bytes, header.shape[i], &data_bytes) || overflow;
  }
  const std::uint64_t found_bytes = file_bytes - header_bytes;
  if (overflow || data_bytes != found_bytes) {
    const bool short_of_it = overflow || found_bytes < data_bytes;
    throw_corrupt(
        name, header_bytes,
        (overflow ? "more than 2^64" : std::to_string(data_bytes)) + " bytes (" + describe(header) + ")",
        std::to_string(found_bytes),
        std::string(short_of_it ? "the file is truncated" : "something was appended") +
            " or its header is wrong: get it again");
  }
  return header;
}

IdxHeader read_idx_header(const std::filesystem::path& path) {
  return read_header(InputFile(path, "IDX file"));
}

IdxArray read_idx(const std::filesystem::path& path) {
  const InputFile file(path, "IDX file");
  const IdxHeader header = read_header(file);
  IdxArray array{header.type, header.shape, std::vector<std::byte>(header.elements() * size_of(header.type))};
  file.read(header.data_offset(), array.data);
  swap_elements(array.data, size_of(array.type));
  return array;
}

void write_idx(const std::filesystem::path& path, const IdxArray& array) {
  check_for_writing(array, path.string());
  std::vector<std::byte> bytes = {std::byte{0}, std::byte{0}, static_cast<std::byte>(array.type),
                                  static_cast<std::byte>(array.shape.size())};
  for (const std::size_t size : array.shape) {
    for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<std::byte>((size >> shift) & 0xff));
  }
  const std::size_t header_bytes = bytes.size();
  bytes.insert(bytes.end(), array.data.begin(), array.data.end());
  swap_elements(std::span(bytes).subspan(header_bytes), size_of(array.type));

  FileReplacement file(path, "IDX file");
  file.write(bytes);
  file.commit();
}

IdxFile::IdxFile(const std::filesystem::path& path) : file_(path, "IDX file"), header_(read_header(file_)) {}

std::size_t IdxFile::record_bytes() const { return header_.record_elements() * size_of(header_.type); }

void IdxFile::read_record(std::size_t i, std::span<std::byte> out) const {
  if (i >= size()) {
    throw_invalid_argument(
        fmt::format("{}: expected a record number below {}, found {}", file_.name(), size(), i));
  }
  file_.read(header_.data_offset() + i * record_bytes(), out);
}

std::vector<std::byte> IdxFile::record(std::size_t i) const {
  std::vector<std::byte> bytes(record_bytes());
  read_record(i, bytes);
  return bytes;
}

template <class To>
void IdxFile::decode_record(std::size_t i, std::span<To> out) const {
  thread_local std::vector<std::byte> bytes;  // a record at a time needs no memory of its own each time
  bytes.resize(record_bytes());
  read_record(i, bytes);
  if (out.size() != header_.record_elements()) {
    throw_invalid_argument(fmt::format("{}: a record has {} elements, found room for {}", file_.name(),
                                       header_.record_elements(), out.size()));
  }
  switch (header_.type) {
    case IdxType::u8: return convert<std::uint8_t>(bytes, out);
    case IdxType::i8: return convert<std::int8_t>(bytes, out);
    case IdxType::i16: return convert<std::int16_t>(bytes, out);
    case IdxType::i32: return convert<std::int32_t>(bytes, out);
    case IdxType::f32:
    case IdxType::f64: break;
  }
  if constexpr (std::floating_point<To>) {
    return header_.type == IdxType::f32 ? convert<float>(bytes, out) : convert<double>(bytes, out);
  }
  throw_invalid_argument(file_.name() + ": expected a file of integers, found " + describe(header_));
}

void IdxFile::decode(std::size_t i, std::span<float> out) const { decode_record(i, out); }
void IdxFile::decode(std::size_t i, std::span<std::int64_t> out) const { decode_record(i, out); }

std::int64_t IdxFile::label(std::size_t i, std::size_t classes) const {
  std::int64_t label = 0;
  decode(i, std::span(&label, 1));
  if (classes != 0 && (label < 0 || static_cast<std::size_t>(label) >= classes)) {
    throw_corrupt(file_.name(), header_.data_offset() + i * record_bytes(),
                  std::string("a label of 0 to ").append(std::to_string(classes - 1)),
                  fmt::format("{} (record {})", label, i),
                  "check the number of classes, or get the file again");
  }
  return label;
}

IdxPair find_idx_pair(const std::filesystem::path& prefix) {
  IdxPair pair{find_one(prefix, "images", "idx3-ubyte"), find_one(prefix, "labels", "idx1-ubyte")};
  const IdxHeader images = read_idx_header(pair.images);
  const IdxHeader labels = read_idx_header(pair.labels);
  if (labels.shape.size() != 1 || labels.records() != images.records()) {
    throw_corrupt(
        pair.labels.string(), labels.shape.size() != 1 ? 3 : 4,
        fmt::format("one label for each of the {} images in {}", images.records(), pair.images.string()),
        describe(labels), "the two files do not belong together: make or get both again");
  }
  return pair;
}

}  // namespace lockstep
