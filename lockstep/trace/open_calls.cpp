#include "lockstep/trace/open_calls.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace lockstep::trace {
namespace {

// A writer is through with a cell in some nanoseconds, unless it was killed there.
constexpr int most_looks = 100;

std::optional<OpenCall> read(const OpenCallTable::Cell& cell) {
  for (int look = 0; look < most_looks; ++look) {
    const std::uint64_t before = cell.stamp.load(std::memory_order_acquire);
    const OpenCall call = cell.call;
    if (before != 0 && cell.stamp.load(std::memory_order_acquire) == before) return call;
  }
  return std::nullopt;
}

constexpr std::uint64_t bit(int place) { return std::uint64_t{1} << static_cast<unsigned>(place); }

}  // namespace

OpenCalls::OpenCalls(OpenCallTable* table) : table_(table) {
  if (table_ == nullptr) return;
  for (OpenCallTable::Cell& cell : table_->cells) last_stamp_ = std::max(last_stamp_, cell.stamp.exchange(0));
}

int OpenCalls::take_place() {
  std::uint64_t& places = free_ != 0 ? free_ : failed_;
  if (places == 0) return nowhere;
  const int place = std::countr_zero(places);
  free_ &= ~bit(place);
  failed_ &= ~bit(place);
  return place;
}

int OpenCalls::open(const OpenCall& call) {
  if (table_ == nullptr) return nowhere;
  const int place = take_place();
  if (place == nowhere) {
    table_->left_out.fetch_add(1, std::memory_order_relaxed);
    return nowhere;
  }
  change(place, [&](OpenCall& here) { here = call; });
  return place;
}

template <class Change>
void OpenCalls::change(int place, Change how) {
  if (place == nowhere) return;
  OpenCallTable::Cell& cell = table_->cells[place];
  // An exchange keeps the change that follows from being seen before it, which a store would not.
  static_cast<void>(cell.stamp.exchange(0, std::memory_order_acq_rel));
  how(cell.call);
  cell.stamp.store(++last_stamp_, std::memory_order_release);
}

void OpenCalls::set_arrived(int place, std::uint64_t arrived_ns) {
  change(place, [&](OpenCall& call) { call.arrived_ns = std::max(arrived_ns, call.looked_ns + 1); });
}

void OpenCalls::set_awaited(int place, std::uint64_t now_ns, const std::vector<int>& awaited) {
  change(place, [&](OpenCall& call) {
    call.looked_ns = now_ns;
    call.awaited_count = static_cast<std::uint32_t>(awaited.size());
    std::copy_n(awaited.begin(), std::min(awaited.size(), call.awaited.size()), call.awaited.begin());
  });
}

void OpenCalls::erase(int place) {
  table_->cells[place].stamp.store(0, std::memory_order_release);
  free_ |= bit(place);
}

void OpenCalls::fail(int place, std::uint64_t now_ns) {
  change(place, [&](OpenCall& call) { call.failed_ns = now_ns; });
  if (place != nowhere) failed_ |= bit(place);
}

std::vector<OpenCall> read_open_calls(const OpenCallTable& table) {
  std::vector<OpenCall> calls;
  for (const OpenCallTable::Cell& cell : table.cells) {
    if (cell.stamp.load(std::memory_order_acquire) == 0) continue;
    if (const auto call = read(cell)) calls.push_back(*call);
  }
  std::stable_sort(calls.begin(), calls.end(),
                   [](const OpenCall& a, const OpenCall& b) { return a.begin_ns < b.begin_ns; });
  return calls;
}

}  // namespace lockstep::trace
