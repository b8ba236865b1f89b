#include "lockstep/trace/totals.h"

#include <bit>

#include "lockstep/base/size_bin.h"
#include "lockstep/trace/record_switch.h"

namespace lockstep::trace {
namespace {

#if defined(__GNUC__)
__attribute__((tls_model("initial-exec")))
#endif
constinit thread_local int steps_of_this_thread = 0;

constexpr std::uint64_t is_used = std::uint64_t{1} << 31;
constexpr std::size_t most_probes = 16;

std::uint64_t pack(const CallClass& of) {
  return std::uint64_t{of.group} << 32 | is_used | std::uint64_t{of.has_counts} << 16 |
         static_cast<std::uint64_t>(of.operation) << 8 | static_cast<std::uint64_t>(of.size_bin);
}

CallClass unpack(std::uint64_t key) {
  return {.group = static_cast<std::uint32_t>(key >> 32),
          .operation = static_cast<Operation>(key >> 8 & 0xff),
          .has_counts = (key >> 16 & 1) != 0,
          .size_bin = static_cast<int>(key & 0xff)};
}

std::size_t place_of(std::uint64_t key) {
  constexpr int bits = std::bit_width(TotalsTable::capacity - 1);
  return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15ULL) >> (64 - bits));
}

// One thread writes, so that a load and a store do, and cost no locked instruction.
void add_to(std::atomic<std::uint64_t>& sum, std::uint64_t more) {
  sum.store(sum.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

CallTotals read(const TotalsTable::Row& row) {
  return {.calls = row.calls.load(std::memory_order_relaxed),
          .bytes = row.bytes.load(std::memory_order_relaxed),
          .ns = row.ns.load(std::memory_order_relaxed),
          .waited_ns = row.waited_ns.load(std::memory_order_relaxed),
          .blocked_ns = row.blocked_ns.load(std::memory_order_relaxed)};
}

}  // namespace

WithinStep::WithinStep() { ++steps_of_this_thread; }
WithinStep::~WithinStep() { --steps_of_this_thread; }

TotalsTable::Row& Totals::row_of(const CallClass& of) {
  const std::uint64_t key = pack(of);
  const std::size_t first = place_of(key);
  for (std::size_t probe = 0; probe < most_probes; ++probe) {
    TotalsTable::Row& row = table_->rows[(first + probe) % TotalsTable::capacity];
    const std::uint64_t found = row.key.load(std::memory_order_relaxed);
    if (found == key) return row;
    if (found == 0) {
      row.key.store(key, std::memory_order_release);
      return row;
    }
  }
  return table_->rest;
}

void Totals::add(const CallClass& of, const CompletedCollective& call, std::uint64_t bytes,
                 std::uint64_t blocked_ns) {
  if (!record_is_on || table_ == nullptr) return;
  TotalsTable::Row& row = row_of(of);
  add_to(row.calls, 1);
  add_to(row.bytes, bytes);
  add_to(row.ns, call.end_ns - call.begin_ns);
  add_to(row.waited_ns, call.arrived_ns - call.begin_ns);
  add_to(row.blocked_ns, steps_of_this_thread == 0 ? blocked_ns : 0);
}

void Totals::add_blocked(const CallClass& of, std::uint64_t ns) {
  if (record_is_on && table_ != nullptr && steps_of_this_thread == 0) add_to(row_of(of).blocked_ns, ns);
}

CallTotals& CallTotals::operator+=(const CallTotals& more) {
  calls += more.calls;
  bytes += more.bytes;
  ns += more.ns;
  waited_ns += more.waited_ns;
  blocked_ns += more.blocked_ns;
  return *this;
}

std::vector<TotalsRow> read_totals(const TotalsTable& table) {
  std::vector<TotalsRow> rows;
  for (const TotalsTable::Row& row : table.rows) {
    const std::uint64_t key = row.key.load(std::memory_order_acquire);
    const CallTotals totals = read(row);
    // What a program has written there by mistake cannot be told.
    const CallClass of = unpack(key);
    const bool makes_sense = of.operation <= Operation::all_to_all && of.size_bin < base::size_bin_count;
    if (key != 0 && makes_sense && totals.calls != 0) rows.push_back({of, totals});
  }
  return rows;
}

CallTotals read_rest(const TotalsTable& table) { return read(table.rest); }

void add_step(StepSums& sums, const TrainingStepEvent& step) {
  if (!record_is_on) return;
  sums.steps.fetch_add(1, std::memory_order_relaxed);
  sums.ns.fetch_add(step.end_ns - step.begin_ns, std::memory_order_relaxed);
  sums.exposed_work_ns.fetch_add(step.exposed_work_ns, std::memory_order_relaxed);
  sums.exposed_wait_ns.fetch_add(step.exposed_wait_ns, std::memory_order_relaxed);
  sums.gradient_bytes.fetch_add(step.gradient_bytes, std::memory_order_relaxed);
}

StepTotals read_steps(const StepSums& sums) {
  return {.steps = sums.steps.load(std::memory_order_relaxed),
          .ns = sums.ns.load(std::memory_order_relaxed),
          .exposed_work_ns = sums.exposed_work_ns.load(std::memory_order_relaxed),
          .exposed_wait_ns = sums.exposed_wait_ns.load(std::memory_order_relaxed),
          .gradient_bytes = sums.gradient_bytes.load(std::memory_order_relaxed)};
}

}  // namespace lockstep::trace
