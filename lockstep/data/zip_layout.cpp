#include "lockstep/data/zip_layout.h"

#include <algorithm>
#include <string_view>

#include "lockstep/data/little_endian.h"

namespace lockstep {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint16_t version = 45;  // that of the 64-bit records
constexpr std::uint16_t names_are_utf8 = 0x0800;
constexpr std::uint16_t stored = 0;
constexpr std::uint32_t no_time = 0x00210000;    // 1980-01-01: the same content has the same bytes
constexpr std::uint16_t padding_field = 0x4246;  // "FB", as torch's writer calls it
constexpr std::size_t field_bytes = 4;           // an extra field's number and length

template <class T>
void put(Bytes& bytes, T value) {
  append_little_endian(bytes, value);
}

void put_text(Bytes& bytes, std::string_view text) {
  const auto raw = std::as_bytes(std::span(text));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

bool is_long(std::uint64_t number) { return number >= zip_elsewhere; }

std::uint32_t short_form(std::uint64_t number) {
  return is_long(number) ? zip_elsewhere : static_cast<std::uint32_t>(number);
}

void put_numbers_field(Bytes& bytes, std::span<const std::uint64_t> numbers) {
  if (numbers.empty()) return;
  put(bytes, zip_numbers_field);
  put(bytes, static_cast<std::uint16_t>(numbers.size() * 8));
  for (const auto number : numbers) put(bytes, number);
}

/// What local header and directory have in common: up to the length of the name.
void put_common(Bytes& bytes, const ZipEntry& entry) {
  put(bytes, version);
  put(bytes, names_are_utf8);
  put(bytes, stored);
  put(bytes, no_time);
  put(bytes, entry.checksum);
  put(bytes, short_form(entry.bytes));  // stored
  put(bytes, short_form(entry.bytes));
  put(bytes, static_cast<std::uint16_t>(entry.name.size()));
}

}  // namespace

Bytes zip_local_header(const ZipEntry& entry) {
  Bytes extra;
  if (is_long(entry.bytes)) put_numbers_field(extra, std::vector{entry.bytes, entry.bytes});
  const std::uint64_t end = entry.header + zip_local_bytes + entry.name.size() + extra.size();
  std::size_t padding = (zip_alignment - end % zip_alignment) % zip_alignment;
  if (padding > 0) {
    if (padding < field_bytes) padding += zip_alignment;
    put(extra, padding_field);
    put(extra, static_cast<std::uint16_t>(padding - field_bytes));
    extra.resize(extra.size() + padding - field_bytes);
  }
  Bytes bytes;
  put(bytes, zip_local_signature);
  put_common(bytes, entry);
  put(bytes, static_cast<std::uint16_t>(extra.size()));
  put_text(bytes, entry.name);
  bytes.insert(bytes.end(), extra.begin(), extra.end());
  return bytes;
}

Bytes zip_directory(std::span<const ZipEntry> entries, std::uint64_t offset) {
  Bytes bytes;
  for (const ZipEntry& entry : entries) {
    Bytes extra;
    std::vector<std::uint64_t> numbers;
    if (is_long(entry.bytes)) numbers = {entry.bytes, entry.bytes};
    if (is_long(entry.header)) numbers.push_back(entry.header);
    put_numbers_field(extra, numbers);
    put(bytes, zip_directory_signature);
    put(bytes, version);  // of who made it
    put_common(bytes, entry);
    put(bytes, static_cast<std::uint16_t>(extra.size()));
    put(bytes, std::uint16_t{0});  // length of a comment
    put(bytes, std::uint16_t{0});  // disk
    put(bytes, std::uint16_t{0});  // whether it is text
    put(bytes, std::uint32_t{0});  // permissions
    put(bytes, short_form(entry.header));
    put_text(bytes, entry.name);
    bytes.insert(bytes.end(), extra.begin(), extra.end());
  }
  const std::uint64_t directory_bytes = bytes.size();
  const std::uint64_t count = entries.size();
  put(bytes, zip_end64_signature);
  put(bytes, std::uint64_t{zip_end64_bytes - 12});  // what follows this number
  put(bytes, version);
  put(bytes, version);
  put(bytes, std::uint32_t{0});  // disk
  put(bytes, std::uint32_t{0});
  put(bytes, count);  // on this disk
  put(bytes, count);
  put(bytes, directory_bytes);
  put(bytes, offset);
  put(bytes, zip_end64_place_signature);
  put(bytes, std::uint32_t{0});  // disk
  put(bytes, offset + directory_bytes);
  put(bytes, std::uint32_t{1});  // disks
  const auto short_count = static_cast<std::uint16_t>(std::min<std::uint64_t>(count, 0xffff));
  put(bytes, zip_end_signature);
  put(bytes, std::uint16_t{0});  // disk
  put(bytes, std::uint16_t{0});
  put(bytes, short_count);  // on this disk
  put(bytes, short_count);
  put(bytes, short_form(directory_bytes));
  put(bytes, short_form(offset));
  put(bytes, std::uint16_t{0});  // length of a comment
  return bytes;
}

}  // namespace lockstep
