// What a rank's connections to other hosts carried, by the rank at their other end: how much, and how long there was
// something under way. In shared memory, and of a fixed size, as totals are.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::trace {

struct Sent {
  int peer = -1;  ///< world rank
  std::uint64_t bytes = 0;
  std::uint64_t busy_ns = 0;  ///< some of them were on the way, and `peer` had room for them
};

/// In shared memory, zeroed at the start.
struct SentTable {
  static constexpr std::size_t capacity = 64;
  struct Row {
    std::atomic<std::int32_t> peer_plus_one;  ///< 0: free
    std::atomic<std::uint64_t> bytes, busy_ns;
  };
  Row rows[capacity];
};

/// To what stands there of that peer; nowhere where the table is full. One thread at a time (the progress lock).
void add_sent(SentTable& table, const Sent& more);

/// Rows as the peers were met.
std::vector<Sent> read_sent(const SentTable& table);

}  // namespace lockstep::trace
