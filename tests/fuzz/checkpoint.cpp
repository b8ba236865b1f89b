// A checkpoint's header, and what its metadata say of the training: nothing is believed that is not in the
// file, and what is accepted is written and read again the same. An input is a byte and the header; 0: its
// checksum is made right, and the file is as long as it says, so that what comes behind the checksum is
// reached.
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/train/checkpoint/checkpoint_format.h"
#include "lockstep/train/checkpoint/training_record.h"
#include "tests/fuzz/script.h"

namespace lockstep::fuzz::checkpoint {
namespace {

constexpr std::size_t file_bytes_at = 24, checksum_at = 48;
constexpr std::uint64_t longest_file = ~std::uint64_t{0} >> 1U;  // as the system has them

void make_checksum_right(std::vector<std::byte>& bytes, std::size_t length) {
  Sha256 checksum{};
  std::copy(checksum.begin(), checksum.end(), bytes.begin() + checksum_at);
  Sha256Sum sum;
  sum.update(std::span(bytes).first(length));
  checksum = sum.digest();
  std::copy(checksum.begin(), checksum.end(), bytes.begin() + checksum_at);
}

void check_entries(const CheckpointHeader& header, std::size_t length, std::uint64_t file_bytes) {
  std::uint64_t end = length;
  for (const CheckpointEntry& entry : header.entries) {
    require(entry.offset >= end && entry.offset - end < checkpoint_alignment, "entries follow each other");
    require(entry.offset % checkpoint_alignment == 0, "entries are aligned");
    require(entry.offset <= file_bytes && entry.bytes <= file_bytes - entry.offset,
            "entries are in the file");
    std::uint64_t bytes = element_bytes(entry.type);
    require(bytes > 0, "entries have a type");
    for (const auto size : entry.shape) bytes *= size;
    require(bytes == entry.bytes, "entries are as long as type and shape say");
    require(!entry.label().empty(), "entries have a name for messages");
    end = entry.offset + entry.bytes;
  }
  require(end == file_bytes, "the file ends with the last entry");
}

bool are_same(const CheckpointHeader& a, const CheckpointHeader& b) {
  return a.epoch == b.epoch && a.metadata == b.metadata &&
         std::ranges::equal(a.entries, b.entries, [](const CheckpointEntry& x, const CheckpointEntry& y) {
           return x.kind == y.kind && x.type == y.type && x.name == y.name && x.shape == y.shape &&
                  x.bytes == y.bytes && x.checksum == y.checksum;
         });
}

void check_record(Metadata metadata) {
  const auto record = take_record(metadata, "file");
  if (!record) return;
  Metadata again;
  put_record(again, record);
  const auto read = take_record(again, "text");
  require(again.empty(), "a record takes all of what it has put");
  require(read && read->step == record->step && read->schedule_step == record->schedule_step &&
              read->sampler == record->sampler && read->random == record->random,
          "a record that is written and read again is the same");
}

void read(std::vector<std::byte> bytes, bool is_made_right) {
  const auto start = std::span(bytes).first(std::min(bytes.size(), checkpoint_fixed_bytes));
  std::uint64_t file_bytes = bytes.size();
  if (is_made_right && bytes.size() >= checkpoint_fixed_bytes) {
    std::memcpy(&file_bytes, bytes.data() + file_bytes_at, sizeof file_bytes);
    file_bytes &= longest_file;
    std::memcpy(bytes.data() + file_bytes_at, &file_bytes, sizeof file_bytes);
  }
  const std::size_t length = header_bytes(start, file_bytes, "file");
  require(length >= checkpoint_fixed_bytes && length <= file_bytes, "the header is in the file");
  if (length > bytes.size()) return;  // of a file that is as long as it says, the rest is not here
  if (is_made_right) make_checksum_right(bytes, length);
  const auto header = decode(std::span(bytes).first(length), file_bytes, "file");
  check_entries(header, length, file_bytes);
  CheckpointHeader copy = header;
  const auto written = encode(copy);
  const auto again = decode(written, copy.file_bytes, "text");
  require(are_same(again, header), "a header that is written and read again is the same");
  check_record(header.metadata);
}

}  // namespace

int run_one(Input input) {
  Script script(input);
  const bool is_made_right = script.below(2) == 0;
  const Input rest = script.bytes(input.size());
  try {
    read({rest.begin(), rest.end()}, is_made_right);
  } catch (const Error& error) {
    const std::string what = error.what();
    require(error.code() == ErrorCode::corrupt_data || error.code() == ErrorCode::unsupported,
            "a damaged checkpoint is corrupt data, and a later one unsupported");
    require(
        what.starts_with("checkpoint file: at byte ") || what.starts_with("file is a checkpoint of format"),
        "an error names the file and the place");
  }
  return 0;
}

}  // namespace lockstep::fuzz::checkpoint
