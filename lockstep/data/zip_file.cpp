#include "lockstep/data/zip_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/byte_codec.h"
#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/data/crc32.h"

namespace lockstep {
namespace {

using base::number_at, base::text_of;

constexpr std::uint16_t encrypted = 1;  // a flag

std::string hex(std::uint32_t number) { return fmt::format("{:08x}", number); }

/// The 64-bit numbers of a directory's record, in its extra fields; empty if there are none.
std::span<const std::byte> long_numbers(std::span<const std::byte> extra) {
  while (extra.size() >= 4) {
    const auto id = number_at<std::uint16_t>(extra, 0);
    const std::size_t length = number_at<std::uint16_t>(extra, 2);
    extra = extra.subspan(4);
    if (length > extra.size()) break;
    if (id == zip_numbers_field) return extra.first(length);
    extra = extra.subspan(length);
  }
  return {};
}

/// How long the directory's record at the beginning of `left` is; 0 if it is none.
std::size_t directory_record_bytes(std::span<const std::byte> left) {
  if (left.size() < zip_directory_bytes || number_at<std::uint32_t>(left, 0) != zip_directory_signature)
    return 0;
  const std::size_t length = zip_directory_bytes + number_at<std::uint16_t>(left, 28) +
                             number_at<std::uint16_t>(left, 30) + number_at<std::uint16_t>(left, 32);
  return length <= left.size() ? length : 0;
}

}  // namespace

void ZipFile::refuse(std::uint64_t offset, const std::string& expected, const std::string& found) const {
  throw Error(
      ErrorCode::corrupt_data,
      fmt::format("{}: at byte {} expected {}, found {}; the file is truncated or damaged: get it again",
                  name(), offset, expected, found));
}

ZipFile::ZipFile(InputFile file) : file_(std::move(file)) {
  const Directory directory = find_directory();
  if (directory.entries > zip_most_entries || directory.bytes > zip_most_directory_bytes) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{}: its directory has {} entries in {} bytes; at most {} in {} are read", name(),
                            directory.entries, directory.bytes, zip_most_entries, zip_most_directory_bytes));
  }
  std::vector<std::byte> bytes(directory.bytes);
  file_.read(directory.offset, bytes);
  std::span<const std::byte> left(bytes);
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    const std::uint64_t offset = directory.offset + (bytes.size() - left.size());
    const std::size_t length = directory_record_bytes(left);
    if (length == 0)
      refuse(offset, fmt::format("entry {} of {} of the directory", i, directory.entries), "none");
    add_entry(left.first(length), offset);
    left = left.subspan(length);
  }
  if (!left.empty()) {
    refuse(directory.offset + (bytes.size() - left.size()), "the end of the directory",
           fmt::format("{} more bytes of it", left.size()));
  }
  forbid_overlaps(directory.offset);
}

ZipFile::Directory ZipFile::find_directory() const {
  constexpr std::size_t end64_bytes = zip_end64_bytes + zip_end64_place_bytes;
  if (file_.size() < zip_end_bytes) refuse(0, "a zip archive", fmt::format("{} bytes in all", file_.size()));
  std::uint64_t at = file_.size() - zip_end_bytes;  // where what follows the directory begins
  std::array<std::byte, zip_end_bytes> end{};
  file_.read(at, end);
  if (number_at<std::uint32_t>(end, 0) != zip_end_signature || number_at<std::uint16_t>(end, 20) != 0)
    refuse(at, "the end of a zip archive", "other bytes");
  Directory directory{.offset = number_at<std::uint32_t>(end, 16),
                      .bytes = number_at<std::uint32_t>(end, 12),
                      .entries = number_at<std::uint16_t>(end, 10)};
  std::array<std::byte, end64_bytes> end64{};
  if (at >= end64_bytes) file_.read(at - end64_bytes, end64);
  if (number_at<std::uint32_t>(end64, zip_end64_bytes) == zip_end64_place_signature) {
    at -= end64_bytes;
    if (number_at<std::uint32_t>(end64, 0) != zip_end64_signature ||
        number_at<std::uint64_t>(end64, zip_end64_bytes + 8) != at)
      refuse(at, "the end of a zip archive in 64 bits", "other bytes");
    directory = {.offset = number_at<std::uint64_t>(end64, 48),
                 .bytes = number_at<std::uint64_t>(end64, 40),
                 .entries = number_at<std::uint64_t>(end64, 32)};
  }
  if (directory.offset > at || directory.bytes != at - directory.offset) {
    refuse(at, "the end of the directory",
           fmt::format("one that is said to be {} bytes from byte {} on", directory.bytes, directory.offset));
  }
  return directory;
}

void ZipFile::add_entry(std::span<const std::byte> record, std::uint64_t offset) {
  const std::size_t name_bytes = number_at<std::uint16_t>(record, 28);
  const auto rest = record.subspan(zip_directory_bytes);
  Entry entry;
  entry.name = text_of(rest.first(name_bytes));
  entry.flags = number_at<std::uint16_t>(record, 8);
  entry.method = number_at<std::uint16_t>(record, 10);
  entry.checksum = number_at<std::uint32_t>(record, 16);
  auto longer = long_numbers(rest.subspan(name_bytes, number_at<std::uint16_t>(record, 30)));
  const auto whole = [&](std::uint32_t short_form) -> std::uint64_t {
    if (short_form != zip_elsewhere || longer.size() < 8) return short_form;
    const auto value = number_at<std::uint64_t>(longer, 0);
    longer = longer.subspan(8);
    return value;
  };
  entry.bytes = whole(number_at<std::uint32_t>(record, 24));  // in this order
  const std::uint64_t stored_bytes = whole(number_at<std::uint32_t>(record, 20));
  entry.header = whole(number_at<std::uint32_t>(record, 42));
  if (entry.method == 0 && entry.bytes != stored_bytes) {
    refuse(offset, fmt::format("entry {} of {} bytes, stored as it is", base::quote(entry.name), entry.bytes),
           fmt::format("{} stored bytes", stored_bytes));
  }
  if (entry.method != 0) entry.bytes = stored_bytes;
  std::string name = entry.name;
  if (!entries_.emplace(std::move(name), entry).second)
    refuse(offset, "each entry once", "a second " + base::quote(entry.name));
}

void ZipFile::forbid_overlaps(std::uint64_t end) {
  std::vector<Entry*> backwards;
  for (auto& [name, entry] : entries_) backwards.push_back(&entry);
  std::ranges::sort(backwards, std::ranges::greater(), &Entry::header);
  std::uint64_t limit = end;
  for (Entry* const entry : backwards) {
    const std::uint64_t header_bytes = zip_local_bytes + entry->name.size();
    if (entry->header > limit || limit - entry->header < header_bytes ||
        limit - entry->header - header_bytes < entry->bytes) {
      refuse(entry->header,
             fmt::format("entry {} of {} bytes to end before byte {}", base::quote(entry->name), entry->bytes,
                         limit),
             "no room for it");
    }
    entry->limit = limit;
    limit = entry->header;
  }
}

void ZipFile::read(const Entry& entry, std::span<std::byte> bytes) const {
  if (entry.method != 0 || (entry.flags & encrypted) != 0) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("{}: its entry {} is compressed or encrypted; torch.save stores as it is: save it "
                    "again with torch.save",
                    name(), base::quote(entry.name)));
  }
  std::vector<std::byte> header(zip_local_bytes + entry.name.size());
  file_.read(entry.header, header);
  const auto name_bytes = number_at<std::uint16_t>(header, 26);
  if (number_at<std::uint32_t>(header, 0) != zip_local_signature || name_bytes != entry.name.size() ||
      text_of(std::span(header).subspan(zip_local_bytes)) != entry.name)
    refuse(entry.header, "entry " + base::quote(entry.name), "other bytes");
  const std::uint64_t content = entry.header + header.size() + number_at<std::uint16_t>(header, 28);
  if (content > entry.limit || entry.limit - content < entry.bytes) {
    refuse(content, fmt::format("entry {} of {} bytes", base::quote(entry.name), entry.bytes),
           fmt::format("the next one at byte {}", entry.limit));
  }
  file_.read(content, bytes);
  if (const auto sum = crc32(bytes); sum != entry.checksum) {
    refuse(content, fmt::format("entry {} with CRC-32 {}", base::quote(entry.name), hex(entry.checksum)),
           "other content, of " + hex(sum));
  }
}

std::vector<std::byte> ZipFile::read(const Entry& entry) const {
  std::vector<std::byte> bytes(entry.bytes);
  read(entry, bytes);
  return bytes;
}

}  // namespace lockstep
