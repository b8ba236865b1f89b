// Running totals of a rank's calls, beside the ring of events, which forgets: how many there were, of how many bytes, for how
// long, by group, operation and size. In shared memory, and of a fixed size: whoever maps it reads, also after the writer was
// killed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/base/operation.h"
#include "lockstep/trace/event.h"

namespace lockstep::trace {

/// What calls are added up by.
struct CallClass {
  std::uint32_t group = 0;  ///< as in events
  Operation operation = Operation::barrier;
  bool has_counts = false;  ///< the v forms, whose ranks differ in what they pass
  int size_bin = 0;         ///< base::size_bin() of the bytes

  friend bool operator==(const CallClass&, const CallClass&) = default;
};

struct CallTotals {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  std::uint64_t ns = 0;          ///< from submission to completion
  std::uint64_t waited_ns = 0;   ///< of it, until all others were known to have come
  std::uint64_t blocked_ns = 0;  ///< that the program stayed in the call and in waits for it

  CallTotals& operator+=(const CallTotals& more);
};

struct TotalsRow {
  CallClass of = {};
  CallTotals totals = {};
};

/// In shared memory, zeroed at the start.
struct TotalsTable {
  static constexpr std::size_t capacity = 2048;  // a power of two
  struct alignas(64) Row {
    std::atomic<std::uint64_t> key;  ///< 0: free
    std::atomic<std::uint64_t> calls, bytes, ns, waited_ns, blocked_ns;
  };
  Row rows[capacity];
  Row rest;  ///< of calls for which there was no room, whatever they were
};

/// The steps of a rank's training, added up. In shared memory, zeroed at the start.
struct StepSums {
  std::atomic<std::uint64_t> steps, ns, exposed_work_ns, exposed_wait_ns, gradient_bytes;
};

struct StepTotals {
  std::uint64_t steps = 0;
  std::uint64_t ns = 0;
  std::uint64_t exposed_work_ns = 0;
  std::uint64_t exposed_wait_ns = 0;
  std::uint64_t gradient_bytes = 0;
};

/// While one lives, what its thread waits for calls is a training step's, which tells of it itself (TrainingStepEvent).
class WithinStep {
 public:
  WithinStep();
  ~WithinStep();
  WithinStep(const WithinStep&) = delete;
  WithinStep& operator=(const WithinStep&) = delete;
};

/// One rank's. One thread at a time (the progress lock).
class Totals {
 public:
  /// Borrows `table`; null adds nothing up.
  explicit Totals(TotalsTable* table = nullptr) : table_(table) {}

  /// A call that is over, of `bytes`. `blocked_ns`: as far as it is known yet.
  void add(const CallClass& of, const CompletedCollective& call, std::uint64_t bytes,
           std::uint64_t blocked_ns);
  /// What a program waited for such a call, which was added or will be.
  void add_blocked(const CallClass& of, std::uint64_t ns);

 private:
  TotalsTable::Row& row_of(const CallClass& of);

  TotalsTable* table_;
};

/// Rows in no particular order. A row that is being written to may lack the last call's part.
std::vector<TotalsRow> read_totals(const TotalsTable& table);
/// Of the calls that found no room.
CallTotals read_rest(const TotalsTable& table);

void add_step(StepSums& sums, const TrainingStepEvent& step);
StepTotals read_steps(const StepSums& sums);

}  // namespace lockstep::trace
