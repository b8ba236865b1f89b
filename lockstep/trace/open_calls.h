// The ring of events (recorder.h) tells of calls that are over; a hang is about those that are not. So a call
// that does not complete at once stands in a small table, in shared memory as the ring is, until it is over:
// what was called, since when, and for whom it was last seen to wait. One that failed stays as it was then,
// because that is the picture of the moment.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/signature.h"

namespace lockstep::trace {

/// Times are nanoseconds of CLOCK_MONOTONIC, 0: not yet.
struct OpenCall {
  static constexpr std::size_t awaited_capacity = 10;

  std::uint64_t sequence = 0;    ///< as in CollectiveEvent; a message: of this rank's with its peer
  std::uint64_t begin_ns = 0;    ///< submitted on this rank
  std::uint64_t arrived_ns = 0;  ///< this rank knew that all others had arrived
  std::uint64_t looked_ns = 0;   ///< a long wait for it last looked for whom it waits
  std::uint64_t failed_ns = 0;   ///< ended by an error
  Signature signature = {};
  std::uint32_t group = 0;          ///< as in CollectiveEvent
  std::int32_t peer = 0;            ///< of a message, in the group's numbering; any_source of receives
  std::uint32_t awaited_count = 0;  ///< how many ranks it was last seen to wait for
  /// World ranks of the first of them.
  std::array<std::int32_t, awaited_capacity> awaited = {};

  std::span<const std::int32_t> awaited_ranks() const {
    return std::span(awaited).first(awaited_count < awaited_capacity ? awaited_count : awaited_capacity);
  }
};

/// In shared memory, zeroed at the start.
struct OpenCallTable {
  static constexpr std::size_t capacity = 64;
  struct alignas(64) Cell {
    std::atomic<std::uint64_t> stamp;  ///< changes with each change; 0: nothing here, or it is being written
    OpenCall call;
  };
  std::atomic<std::uint64_t> left_out;  ///< calls that found no place
  Cell cells[capacity];
};

/// One rank's calls under way. One thread at a time (the progress lock).
class OpenCalls {
 public:
  /// Borrows `table`, and empties it: calls that stand there are of an earlier world. Null keeps nothing.
  explicit OpenCalls(OpenCallTable* table = nullptr);

  static constexpr int nowhere = -1;
  /// Returns its place, or `nowhere` where there is none. A call that failed gives its place up when no other
  /// is left.
  int open(const OpenCall& call);
  // Of a call that stands nowhere these do nothing.
  /// What was seen of it before holds no more: it arrived after it was looked at.
  void set_arrived(int place, std::uint64_t arrived_ns);
  /// `awaited`: world ranks, as far as is known.
  void set_awaited(int place, std::uint64_t now_ns, const std::vector<int>& awaited);
  /// It is over and well.
  void close(int place) {
    if (place != nowhere) erase(place);
  }
  /// It is over and stays to be read.
  void fail(int place, std::uint64_t now_ns);

 private:
  int take_place();
  void erase(int place);
  template <class Change>
  void change(int place, Change how);

  OpenCallTable* table_;
  std::uint64_t free_ = ~std::uint64_t{0};  // a bit for each cell
  std::uint64_t failed_ = 0;
  std::uint64_t last_stamp_ = 0;
};
static_assert(OpenCallTable::capacity == 64);

/// The calls that stand in the table, the oldest first. One that changes all the time while it is read is
/// left out.
std::vector<OpenCall> read_open_calls(const OpenCallTable& table);

}  // namespace lockstep::trace
