// A queue of bytes in shared memory with one writer and one reader: the channel of ranks on one host.
//
//   line with the reader's counters | lines ...
//
// What is written becomes records: one or more cache lines, the first of which begins with the record's
// length, which is stored last. So a small record is one line, and its way from core to core is all that it
// costs; a large one is cut into several, so that one side copies in while the other copies out. Where the
// next record will begin, there is a zero.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/kernel/copy.h"

namespace lockstep {

/// A view of zeroed shared memory, which one writer and one reader each have for as long as it is used.
/// Wait-free. What the other side looks at is stored sequentially consistent, as a doorbell wants it.
class ByteRing {
 public:
  /// `memory`: aligned to a cache line; `bytes`: three lines or more.
  ByteRing(std::byte* memory, std::size_t bytes);

  /// Writer: copies in as much of `first`, then of `second`, as fits, and returns how much that was.
  std::size_t write(std::span<const std::byte> first, std::span<const std::byte> second = {});
  /// Reader: copies out as much as is there. Throws corrupt_data for a length that no writer wrote.
  std::size_t read(std::span<std::byte> bytes);

  /// Beside the bytes, a count that only the reader moves: what it says of it is up to both.
  void note_taken() { counters_->taken.fetch_add(1, std::memory_order_seq_cst); }  ///< reader
  std::uint64_t taken() const { return counters_->taken.load(std::memory_order_seq_cst); }

 private:
  struct Counters {
    alignas(64) std::atomic<std::uint64_t> consumed;  ///< lines; now and then
    std::atomic<std::uint64_t> taken;
  };
  std::byte* line(std::uint64_t ahead) const;
  std::atomic<std::uint64_t>& length(std::uint64_t ahead) const;
  std::uint64_t room() const;
  void move_on(std::uint64_t lines);
  std::byte* put(std::byte* to, std::span<const std::byte>& from, std::size_t count);
  std::size_t write_record(std::span<const std::byte>& first, std::span<const std::byte>& second);
  std::uint64_t free_lines(std::uint64_t wanted);
  void keep_zeros(std::uint64_t end);

  Counters* counters_;
  std::byte* lines_;
  std::uint64_t line_count_;
  std::uint64_t position_ = 0;  // of the next record, in lines since the first
  std::uint64_t index_ = 0;     // the same in the ring: a remainder takes longer than all else
  // The writer's.
  kernel::CrossingCopies crossing_;
  std::uint64_t consumed_seen_ = 0;
  std::uint64_t zeros_end_;  // lines before it and from position_ on have the length zero
  // The reader's.
  std::uint64_t told_ = 0;  // how far the writer was told that lines are free
  std::size_t offset_ = 0;  // how much of the record was read
};

}  // namespace lockstep
