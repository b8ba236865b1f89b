#include "lockstep/data/zip_layout.h"

#include <algorithm>

#include "lockstep/base/byte_codec.h"

namespace lockstep {
namespace {

using base::append_bytes, base::append_number, base::append_text;

using Bytes = std::vector<std::byte>;

constexpr std::uint16_t version = 45;  // that of the 64-bit records
constexpr std::uint16_t names_are_utf8 = 0x0800;
constexpr std::uint16_t stored = 0;
constexpr std::uint32_t no_time = 0x00210000;    // 1980-01-01: the same content has the same bytes
constexpr std::uint16_t padding_field = 0x4246;  // "FB", as torch's writer calls it
constexpr std::size_t field_bytes = 4;           // an extra field's number and length

bool is_long(std::uint64_t number) { return number >= zip_elsewhere; }

std::uint32_t short_form(std::uint64_t number) {
  return is_long(number) ? zip_elsewhere : static_cast<std::uint32_t>(number);
}

void put_numbers_field(Bytes& bytes, std::span<const std::uint64_t> numbers) {
  if (numbers.empty()) return;
  append_number(bytes, zip_numbers_field);
  append_number(bytes, static_cast<std::uint16_t>(numbers.size() * 8));
  for (const auto number : numbers) append_number(bytes, number);
}

/// What local header and directory have in common: up to the length of the name.
void put_common(Bytes& bytes, const ZipEntry& entry) {
  append_number(bytes, version);
  append_number(bytes, names_are_utf8);
  append_number(bytes, stored);
  append_number(bytes, no_time);
  append_number(bytes, entry.checksum);
  append_number(bytes, short_form(entry.bytes));  // stored
  append_number(bytes, short_form(entry.bytes));
  append_number(bytes, static_cast<std::uint16_t>(entry.name.size()));
}

}  // namespace

Bytes zip_local_header(const ZipEntry& entry) {
  Bytes extra;
  if (is_long(entry.bytes)) put_numbers_field(extra, std::vector{entry.bytes, entry.bytes});
  const std::uint64_t end = entry.header + zip_local_bytes + entry.name.size() + extra.size();
  std::size_t padding = (zip_alignment - end % zip_alignment) % zip_alignment;
  if (padding > 0) {
    if (padding < field_bytes) padding += zip_alignment;
    append_number(extra, padding_field);
    append_number(extra, static_cast<std::uint16_t>(padding - field_bytes));
    extra.resize(extra.size() + padding - field_bytes);
  }
  Bytes bytes;
  append_number(bytes, zip_local_signature);
  put_common(bytes, entry);
  append_number(bytes, static_cast<std::uint16_t>(extra.size()));
  append_text(bytes, entry.name);
  append_bytes(bytes, extra);
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
    append_number(bytes, zip_directory_signature);
    append_number(bytes, version);  // of who made it
    put_common(bytes, entry);
    append_number(bytes, static_cast<std::uint16_t>(extra.size()));
    append_number(bytes, std::uint16_t{0});  // length of a comment
    append_number(bytes, std::uint16_t{0});  // disk
    append_number(bytes, std::uint16_t{0});  // whether it is text
    append_number(bytes, std::uint32_t{0});  // permissions
    append_number(bytes, short_form(entry.header));
    append_text(bytes, entry.name);
    append_bytes(bytes, extra);
  }
  const std::uint64_t directory_bytes = bytes.size();
  const std::uint64_t count = entries.size();
  append_number(bytes, zip_end64_signature);
  append_number(bytes, std::uint64_t{zip_end64_bytes - 12});  // what follows this number
  append_number(bytes, version);
  append_number(bytes, version);
  append_number(bytes, std::uint32_t{0});  // disk
  append_number(bytes, std::uint32_t{0});
  append_number(bytes, count);  // on this disk
  append_number(bytes, count);
  append_number(bytes, directory_bytes);
  append_number(bytes, offset);
  append_number(bytes, zip_end64_place_signature);
  append_number(bytes, std::uint32_t{0});  // disk
  append_number(bytes, offset + directory_bytes);
  append_number(bytes, std::uint32_t{1});  // disks
  const auto short_count = static_cast<std::uint16_t>(std::min<std::uint64_t>(count, 0xffff));
  append_number(bytes, zip_end_signature);
  append_number(bytes, std::uint16_t{0});  // disk
  append_number(bytes, std::uint16_t{0});
  append_number(bytes, short_count);  // on this disk
  append_number(bytes, short_count);
  append_number(bytes, short_form(directory_bytes));
  append_number(bytes, short_form(offset));
  append_number(bytes, std::uint16_t{0});  // length of a comment
  return bytes;
}

}  // namespace lockstep
