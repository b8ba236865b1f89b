#include "lockstep/view/live/live_rates.h"

#include <algorithm>

#include "lockstep/base/median.h"

namespace lockstep::view {
namespace {

using trace::FlightRank;

/// A call in which no wait has looked around for so long is one that nobody waits for.
constexpr std::uint64_t looks_around_within_ns = 1'000'000'000;

/// Since when the rank waits in a call that is not over, and so in no sum.
std::uint64_t in_open_call_ns(const FlightRank& rank, std::uint64_t at_ns) {
  std::uint64_t longest = 0;
  for (const trace::OpenCall& call : rank.open_calls) {
    const bool is_waited_for =
        call.looked_ns != 0 && call.failed_ns == 0 && call.looked_ns + looks_around_within_ns > at_ns;
    if (is_waited_for && call.begin_ns < at_ns) longest = std::max(longest, at_ns - call.begin_ns);
  }
  return longest;
}

/// With what is blocked now.
trace::CallTotals sums_of(const FlightRank& rank, std::uint64_t at_ns) {
  trace::CallTotals sums = trace::all_calls(rank);
  sums.blocked_ns += rank.steps.exposed_work_ns + rank.steps.exposed_wait_ns + in_open_call_ns(rank, at_ns);
  return sums;
}

double more(std::uint64_t before, std::uint64_t after) {
  return after > before ? static_cast<double>(after - before) : 0;
}

double share(double part, double whole) { return whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 0; }

void add_steps(RankRates& rates, const trace::StepTotals& before, const trace::StepTotals& after,
               double elapsed_ns) {
  rates.steps = after.steps;
  if (after.steps <= before.steps) return;
  rates.step_ns = static_cast<std::uint64_t>(elapsed_ns / more(before.steps, after.steps));
  rates.exposed_share = share(more(before.exposed_work_ns, after.exposed_work_ns) +
                                  more(before.exposed_wait_ns, after.exposed_wait_ns),
                              more(before.ns, after.ns));
}

std::optional<double> images_per_second(const LiveRank& rank) {
  const auto found = std::ranges::find(rank.counters, "images/s", &NamedValue::name);
  return found == rank.counters.end() ? std::nullopt : std::optional(found->value);
}

}  // namespace

std::vector<RankRates> live_rates(const LiveHost& before, const LiveHost& after) {
  const double elapsed_ns = more(before.record.at_ns, after.record.at_ns);
  const auto per_second = [&](double amount) { return elapsed_ns > 0 ? amount * 1e9 / elapsed_ns : 0; };
  std::vector<RankRates> all;
  for (std::size_t i = 0; i < after.record.ranks.size(); ++i) {
    const FlightRank& rank = after.record.ranks[i];
    const FlightRank& earlier = i < before.record.ranks.size() ? before.record.ranks[i] : rank;
    const LiveRank& live = after.ranks[i];
    const trace::CallTotals from = sums_of(earlier, before.record.at_ns),
                            to = sums_of(rank, after.record.at_ns);
    RankRates rates{
        .rank = rank.rank,
        .pid = rank.pid,
        .calls_per_second = per_second(more(from.calls, to.calls)),
        .bytes_per_second = per_second(std::max(
            more(from.bytes, to.bytes), more(earlier.steps.gradient_bytes, rank.steps.gradient_bytes))),
        .blocked_share = share(more(from.blocked_ns, to.blocked_ns), elapsed_ns),
        .last_arrivals = live.late.size(),
        .late_ns = live.late.empty() ? 0 : base::median(live.late),
        .resident_bytes = live.resident_bytes,
        .images_per_second = images_per_second(live)};
    add_steps(rates, earlier.steps, rank.steps, elapsed_ns);
    all.push_back(rates);
  }
  return all;
}

}  // namespace lockstep::view
