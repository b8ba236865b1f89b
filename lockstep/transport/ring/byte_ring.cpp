#include "lockstep/transport/ring/byte_ring.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/kernel/own_line.h"

namespace lockstep {
namespace {

using kernel::line_bytes;
constexpr std::size_t length_bytes = sizeof(std::uint64_t);
// Small enough to stay in a core's nearest cache on its way, and that the other side begins soon.
constexpr std::uint64_t most_lines = 256;
// Zeros that are written ahead: more than most small records have lines.
constexpr std::uint64_t zeros_ahead = 4;

constexpr std::uint64_t lines_of(std::size_t bytes) {
  return (length_bytes + bytes + line_bytes - 1) / line_bytes;
}

}  // namespace

ByteRing::ByteRing(std::byte* memory, std::size_t bytes)
    : counters_(reinterpret_cast<Counters*>(memory)),
      lines_(memory + sizeof(Counters)),
      line_count_((bytes - sizeof(Counters)) / line_bytes),
      zeros_end_(line_count_) {}

/// The line so many after the next record's first.
/// REQUIRES: no more than the ring has.
std::byte* ByteRing::line(std::uint64_t ahead) const {
  const std::uint64_t index = index_ + ahead;
  return lines_ + (index < line_count_ ? index : index - line_count_) * line_bytes;
}

std::atomic<std::uint64_t>& ByteRing::length(std::uint64_t ahead) const {
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(line(ahead));
}

/// The most lines that the next record can have.
std::uint64_t ByteRing::room() const { return std::min(line_count_ - index_, most_lines); }

void ByteRing::move_on(std::uint64_t lines) {
  position_ += lines;
  index_ += lines;
  if (index_ >= line_count_) index_ -= line_count_;
}

std::uint64_t ByteRing::free_lines(std::uint64_t wanted) {
  if (line_count_ - (position_ - consumed_seen_) < wanted)
    consumed_seen_ = counters_->consumed.load(std::memory_order_seq_cst);
  return line_count_ - (position_ - consumed_seen_);
}

/// REQUIRES: lines before `end` are free.
void ByteRing::keep_zeros(std::uint64_t end) {
  for (zeros_end_ = std::max(zeros_end_, position_); zeros_end_ < end; ++zeros_end_)
    length(zeros_end_ - position_).store(0, std::memory_order_relaxed);
}

std::byte* ByteRing::put(std::byte* to, std::span<const std::byte>& from, std::size_t count) {
  if (count > 0) crossing_.copy(to, from.data(), count);
  from = from.subspan(count);
  return to + count;
}

std::size_t ByteRing::write_record(std::span<const std::byte>& first, std::span<const std::byte>& second) {
  const std::size_t wanted = first.size() + second.size();
  const std::uint64_t most = std::min(lines_of(wanted), room());
  const std::uint64_t free = free_lines(most + 1);
  if (free < 2) return 0;
  const std::size_t count = std::min(wanted, std::min(most, free - 1) * line_bytes - length_bytes);
  const std::uint64_t lines = lines_of(count);
  if (position_ + lines >= zeros_end_) {
    length(lines).store(0, std::memory_order_relaxed);
    zeros_end_ = position_ + lines + 1;
  }
  const std::size_t of_first = std::min(count, first.size());
  std::byte* const rest = put(line(0) + length_bytes, first, of_first);
  put(rest, second, count - of_first);
  length(0).store(count, std::memory_order_seq_cst);
  move_on(lines);
  return count;
}

std::size_t ByteRing::write(std::span<const std::byte> first, std::span<const std::byte> second) {
  std::size_t written = 0;
  while (!first.empty() || !second.empty()) {
    const std::size_t count = write_record(first, second);
    if (count == 0) break;
    written += count;
  }
  // Now, while what was written is on its way.
  keep_zeros(std::min(position_ + zeros_ahead, consumed_seen_ + line_count_));
  return written;
}

std::size_t ByteRing::read(std::span<std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::uint64_t record = length(0).load(std::memory_order_seq_cst);
    if (record == 0) break;
    if (record > room() * line_bytes - length_bytes || offset_ >= record) {
      throw Error(ErrorCode::corrupt_data, "a record of " + std::to_string(record) +
                                               " bytes stands in a ring between two ranks where it cannot: "
                                               "shared memory was overwritten");
    }
    const std::size_t count = std::min(bytes.size() - done, record - offset_);
    std::memcpy(bytes.data() + done, line(0) + length_bytes + offset_, count);
    done += count;
    offset_ += count;
    if (offset_ < record) break;
    offset_ = 0;
    move_on(lines_of(record));
    if (position_ - told_ < line_count_ / 8) continue;
    told_ = position_;
    counters_->consumed.store(told_, std::memory_order_seq_cst);
  }
  return done;
}

}  // namespace lockstep
