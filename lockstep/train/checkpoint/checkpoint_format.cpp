#include "lockstep/train/checkpoint/checkpoint_format.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "lockstep/base/byte_codec.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::array<unsigned char, 8> magic = {0x89, 'L', 'S', 'C', 'K', '\r', '\n', 0x1a};
constexpr std::uint32_t version = 1;
constexpr std::size_t version_at = 8, checksum_at = 48;
constexpr std::size_t max_text_bytes = std::size_t{1} << 20, max_dimensions = 64;

std::uint64_t aligned(std::uint64_t offset) {
  return (offset + checkpoint_alignment - 1) / checkpoint_alignment * checkpoint_alignment;
}

class Writer {
 public:
  template <base::Number T>
  void number(T value) {
    base::append_number(bytes_, value);
  }
  void raw(std::span<const std::byte> bytes) { base::append_bytes(bytes_, bytes); }
  void text(const std::string& text, const char* what) {
    if (text.size() > max_text_bytes) {
      throw_invalid_argument(std::string("a checkpoint cannot hold ") + what + " of " +
                             std::to_string(text.size()) + " bytes; at most " +
                             std::to_string(max_text_bytes));
    }
    base::append_with_length(bytes_, text);
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string_view file) : in_(bytes), file_(file) {}

  template <base::Number T>
  T number(const char* what) {
    return base::number_at<T>(take(sizeof(T), what));
  }
  std::string text(const char* what) {
    const auto length = number<base::Length>(what);
    if (length > max_text_bytes)
      corrupt(what + std::string(" of at most 1 MiB"), std::to_string(length) + " bytes");
    return std::string(base::text_of(take(length, what)));
  }
  std::span<const std::byte> take(std::size_t count, const char* what) {
    const auto taken = in_.take(count);
    if (!taken) {
      corrupt(what + std::string(" (") + std::to_string(count) + " bytes)",
              "the header's end after " + std::to_string(in_.left().size()));
    }
    return *taken;
  }
  std::size_t left() const { return in_.left().size(); }
  [[noreturn]] void corrupt(const std::string& expected, const std::string& found) const {
    throw_corrupt_checkpoint(file_, in_.at(), expected, found);
  }

 private:
  base::ByteReader in_;
  std::string_view file_;
};

Sha256 checksum_of_header(std::span<const std::byte> bytes) {
  const Sha256 zero{};
  Sha256Sum sum;
  sum.update(bytes.first(checksum_at));
  sum.update(zero);
  sum.update(bytes.subspan(checksum_at + zero.size()));
  return sum.digest();
}

void write_entry(Writer& out, const CheckpointEntry& entry) {
  if (entry.shape.size() > max_dimensions) {
    throw_invalid_argument("a checkpoint cannot hold " + entry.label() + " with " +
                           std::to_string(entry.shape.size()) + " dimensions; at most 64");
  }
  out.number(entry.kind);
  out.number(entry.type);
  out.number(static_cast<std::uint16_t>(entry.shape.size()));
  out.text(entry.name, "a name");
  for (const auto size : entry.shape) out.number(size);
  out.number(entry.offset);
  out.number(entry.bytes);
  out.raw(entry.checksum);
}

std::vector<std::byte> write_header(const CheckpointHeader& header, std::uint64_t header_bytes) {
  Writer out;
  out.raw(std::as_bytes(std::span(magic)));
  out.number(version);
  out.number(static_cast<std::uint32_t>(header.entries.size()));
  out.number(header_bytes);
  out.number(header.file_bytes);
  out.number(header.epoch);
  out.number(static_cast<std::uint32_t>(header.metadata.size()));
  out.number(std::uint32_t{0});
  out.raw(Sha256{});
  for (const auto& [key, value] : header.metadata) {
    out.text(key, "a metadata key");
    out.text(value, "a metadata value");
  }
  for (const auto& entry : header.entries) write_entry(out, entry);
  return std::move(out.bytes());
}

/// shape × size of an element; nullopt where that is no type or too much for 64 bits.
std::optional<std::uint64_t> bytes_of(const CheckpointEntry& entry) {
  std::uint64_t bytes = element_bytes(entry.type);
  if (bytes == 0) return std::nullopt;
  for (const auto size : entry.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

CheckpointEntry read_entry(Reader& in, std::uint64_t offset, std::uint64_t file_bytes) {
  CheckpointEntry entry;
  const auto kind = in.number<std::uint8_t>("an entry's kind");
  if (kind > static_cast<std::uint8_t>(EntryKind::optimizer))
    in.corrupt("a kind of 0 to 2", std::to_string(kind));
  entry.kind = static_cast<EntryKind>(kind);
  entry.type = in.number<std::uint8_t>("an entry's type");
  const auto dimensions = in.number<std::uint16_t>("a number of dimensions");
  if (dimensions > max_dimensions) in.corrupt("at most 64 dimensions", std::to_string(dimensions));
  entry.name = in.text("a name");
  for (int i = 0; i < dimensions; ++i) entry.shape.push_back(in.number<std::uint64_t>("a size"));
  entry.offset = in.number<std::uint64_t>("an offset");
  entry.bytes = in.number<std::uint64_t>("a length");
  std::ranges::copy(in.take(entry.checksum.size(), "a checksum"), entry.checksum.begin());
  if (bytes_of(entry) != entry.bytes) {
    in.corrupt(entry.label() + " to be as long as its type and shape say",
               std::to_string(entry.bytes) + " bytes");
  }
  if (entry.offset != offset || entry.offset > file_bytes || entry.bytes > file_bytes - entry.offset) {
    in.corrupt(entry.label() + " at byte " + std::to_string(offset) + " of " + std::to_string(file_bytes),
               std::to_string(entry.bytes) + " bytes at byte " + std::to_string(entry.offset));
  }
  return entry;
}

}  // namespace

std::string CheckpointEntry::label() const {
  constexpr std::array<const char*, 3> kinds = {"parameter ", "buffer ", "state of the optimizer "};
  return kinds[static_cast<std::size_t>(kind)] + name;
}

std::size_t element_bytes(std::uint8_t type) {
  constexpr std::array<std::uint8_t, 12> sizes = {1, 4, 8, 2, 2, 4, 8, 1, 2, 1, 8, 16};
  return type < sizes.size() ? sizes[type] : 0;
}

std::vector<std::byte> encode(CheckpointHeader& header) {
  const std::uint64_t header_bytes = write_header(header, 0).size();
  if (header_bytes > checkpoint_max_header_bytes) {
    throw_invalid_argument("a checkpoint's names and metadata may have 256 MiB; these have " +
                           std::to_string(header_bytes) + " bytes");
  }
  header.file_bytes = header_bytes;
  for (auto& entry : header.entries) {
    entry.offset = aligned(header.file_bytes);
    header.file_bytes = entry.offset + entry.bytes;
  }
  return encode_as_it_is(header);
}

std::vector<std::byte> encode_as_it_is(const CheckpointHeader& header) {
  auto bytes = write_header(header, write_header(header, 0).size());
  std::ranges::copy(checksum_of_header(bytes), bytes.begin() + checksum_at);
  return bytes;
}

std::size_t header_bytes(std::span<const std::byte> start, std::uint64_t file_bytes, std::string_view file) {
  const std::size_t known = std::min(start.size(), magic.size());
  if (known == 0 || std::memcmp(start.data(), magic.data(), known) != 0) {
    throw_corrupt_checkpoint(file, 0, "the first bytes of a Lockstep checkpoint",
                             known == 0 ? "an empty file" : "other ones");
  }
  if (start.size() < checkpoint_fixed_bytes) {
    throw_corrupt_checkpoint(file, start.size(), "a header of at least 80 bytes", "the end of the file");
  }
  Reader in(start, file);
  in.take(version_at, "the first bytes");
  if (const auto found = in.number<std::uint32_t>("a version"); found != version) {
    if (found == 0) throw_corrupt_checkpoint(file, version_at, "a version", "0");
    throw Error(ErrorCode::unsupported, std::string(file) + " is a checkpoint of format version " +
                                            std::to_string(found) +
                                            "; this Lockstep reads version 1: use a newer one");
  }
  in.number<std::uint32_t>("a number of entries");
  const auto bytes = in.number<std::uint64_t>("the header's length");
  if (bytes < checkpoint_fixed_bytes || bytes > checkpoint_max_header_bytes || bytes > file_bytes) {
    throw_corrupt_checkpoint(file, 16,
                             "a header that fits into the file's " + std::to_string(file_bytes) + " bytes",
                             "one of " + std::to_string(bytes));
  }
  return static_cast<std::size_t>(bytes);
}

CheckpointHeader decode(std::span<const std::byte> bytes, std::uint64_t file_bytes, std::string_view file) {
  if (!std::ranges::equal(checksum_of_header(bytes), bytes.subspan(checksum_at, sizeof(Sha256)))) {
    throw_corrupt_checkpoint(file, checksum_at, "the header's checksum", "another one");
  }
  Reader in(bytes, file);
  in.take(version_at + sizeof version, "the first bytes");
  const auto entries = in.number<std::uint32_t>("a number of entries");
  in.number<std::uint64_t>("the header's length");
  CheckpointHeader header;
  header.file_bytes = in.number<std::uint64_t>("the file's length");
  if (header.file_bytes != file_bytes) {
    throw_corrupt_checkpoint(file, std::min(header.file_bytes, file_bytes),
                             "a file of " + std::to_string(header.file_bytes) + " bytes",
                             std::to_string(file_bytes) + " bytes");
  }
  header.epoch = in.number<std::uint64_t>("an epoch");
  const auto pairs = in.number<std::uint32_t>("a number of metadata");
  in.take(sizeof(std::uint32_t) + sizeof(Sha256), "a checksum");
  for (std::uint32_t i = 0; i < pairs; ++i) {
    std::string key = in.text("a metadata key");
    header.metadata.insert_or_assign(std::move(key), in.text("a metadata value"));
  }
  std::uint64_t end = bytes.size();
  for (std::uint32_t i = 0; i < entries; ++i) {
    const auto& entry = header.entries.emplace_back(read_entry(in, aligned(end), file_bytes));
    end = entry.offset + entry.bytes;
  }
  if (in.left() != 0) in.corrupt("the header's end", std::to_string(in.left()) + " bytes more");
  if (end != file_bytes) throw_corrupt_checkpoint(file, end, "the end of the file", "more of it");
  return header;
}

void throw_corrupt_checkpoint(std::string_view file, std::uint64_t offset, const std::string& expected,
                              const std::string& found) {
  throw Error(ErrorCode::corrupt_data, "checkpoint " + std::string(file) + ": at byte " +
                                           std::to_string(offset) + " expected " + expected + ", found " +
                                           found + "; the file is damaged or no checkpoint: use another one");
}

}  // namespace lockstep
