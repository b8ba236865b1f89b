// A queue of bytes in shared memory with one writer and one reader: the channel of ranks on one host.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// A view of `ring_bytes` of zeroed shared memory; either side makes its own. Lock-free, wait-free.
/// The two counters only grow; both sit on cache lines of their own, and each side remembers the other's.
/// They are stored sequentially consistent, as a doorbell wants it.
class ByteRing {
 public:
  ByteRing(std::byte* memory, std::size_t bytes);

  /// Writer: copies in as much as fits.
  std::size_t write(std::span<const std::byte> bytes);
  /// Reader: copies out as much as is there.
  std::size_t read(std::span<std::byte> bytes);

 private:
  struct Counters {
    alignas(64) std::atomic<std::uint64_t> written;
    alignas(64) std::atomic<std::uint64_t> consumed;
  };
  Counters* counters_;
  std::byte* data_;
  std::size_t capacity_;
  std::uint64_t written_seen_ = 0;
  std::uint64_t consumed_seen_ = 0;
};

}  // namespace lockstep
