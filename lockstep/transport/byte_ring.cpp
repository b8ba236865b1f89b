#include "lockstep/transport/byte_ring.h"

#include <algorithm>
#include <cstring>

namespace lockstep {

ByteRing::ByteRing(std::byte* memory, std::size_t bytes)
    : counters_(reinterpret_cast<Counters*>(memory)),
      data_(memory + sizeof(Counters)),
      capacity_(bytes - sizeof(Counters)) {}

std::size_t ByteRing::write(std::span<const std::byte> bytes) {
  const std::uint64_t written = counters_->written.load(std::memory_order_relaxed);
  if (capacity_ - (written - consumed_seen_) < bytes.size()) {
    consumed_seen_ = counters_->consumed.load(std::memory_order_seq_cst);
  }
  const std::size_t count = std::min<std::size_t>(bytes.size(), capacity_ - (written - consumed_seen_));
  if (count == 0) return 0;
  const std::size_t position = written % capacity_;
  const std::size_t until_end = std::min(count, capacity_ - position);
  std::memcpy(data_ + position, bytes.data(), until_end);
  std::memcpy(data_, bytes.data() + until_end, count - until_end);
  counters_->written.store(written + count, std::memory_order_seq_cst);
  return count;
}

std::size_t ByteRing::read(std::span<std::byte> bytes) {
  const std::uint64_t consumed = counters_->consumed.load(std::memory_order_relaxed);
  if (written_seen_ - consumed < bytes.size())
    written_seen_ = counters_->written.load(std::memory_order_seq_cst);
  const std::size_t count = std::min<std::size_t>(bytes.size(), written_seen_ - consumed);
  if (count == 0) return 0;
  const std::size_t position = consumed % capacity_;
  const std::size_t until_end = std::min(count, capacity_ - position);
  std::memcpy(bytes.data(), data_ + position, until_end);
  std::memcpy(bytes.data() + until_end, data_, count - until_end);
  counters_->consumed.store(consumed + count, std::memory_order_seq_cst);
  return count;
}

}  // namespace lockstep
