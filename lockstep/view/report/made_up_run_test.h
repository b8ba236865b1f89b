// Runs that never were, for tests of what a report says of them: ranks that train in step, each with its own times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/view/report/run_data.h"

namespace lockstep::view {

inline constexpr std::uint64_t made_up_ms = 1'000'000;

/// What each step of a rank takes.
struct MadeUpRank {
  double data_ms = 0, compute_ms = 20, optimizer_ms = 1;
  double transfer_ms = 0;  ///< exposed, on this rank only
  double cores = 1;        ///< user time over elapsed
};

struct MadeUpTraining {
  std::vector<MadeUpRank> ranks = std::vector<MadeUpRank>(4);
  int steps = 60;
  double work_ms = 0.2;    ///< exposed copying of all ranks
  double jitter_ms = 0.1;  ///< ranks take turns in being so much later
  std::uint32_t buckets = 8, buckets_complete = 6;

  RunData run() const;
};

inline std::uint64_t made_up_ns(double ms) { return static_cast<std::uint64_t>(ms * 1e6); }

/// Of a rank that joined at 0 and left at `elapsed_ns`.
inline trace::FlightRank made_up_record(int rank, std::uint64_t elapsed_ns, double cores) {
  trace::FlightRank made{.rank = rank, .pid = 100 + rank, .joined = true, .left = true};
  made.costs = {.joined_at_ns = 1,
                .left_at_ns = 1 + elapsed_ns,
                .process = {.user_ns = static_cast<std::uint64_t>(static_cast<double>(elapsed_ns) * cores),
                            .most_resident_bytes = 1 << 28},
                .on_core_ns = static_cast<std::uint64_t>(static_cast<double>(elapsed_ns) * cores),
                .core_wait_ns = static_cast<std::uint64_t>(static_cast<double>(elapsed_ns) * (1 - cores))};
  return made;
}

inline RunData MadeUpTraining::run() const {
  RunData run{.name = "made up"};
  run.timeline.job = "4f2a";
  run.record = trace::FlightRecord{.job = "4f2a", .host = "a", .written_at = "now"};
  std::vector<std::uint64_t> begin(ranks.size(), made_up_ms);
  for (std::size_t r = 0; r < ranks.size(); ++r)
    run.timeline.ranks.push_back(
        {.rank = static_cast<int>(r), .pid = 1, .host = "a", .span_names = {"?", "data", "optimizer"}});
  for (int step = 0; step < steps; ++step) {
    std::vector<std::uint64_t> last(ranks.size());
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const bool is_its_turn = static_cast<std::size_t>(step) % ranks.size() == r;
      last[r] = begin[r] + made_up_ns(ranks[r].compute_ms + (is_its_turn ? jitter_ms : 0));
    }
    const std::uint64_t all = *std::max_element(last.begin(), last.end());
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const std::uint64_t end = all + made_up_ns(work_ms + ranks[r].transfer_ms);
      run.timeline.ranks[r].steps.push_back(
          {.step = static_cast<std::uint64_t>(step),
           .begin_ns = begin[r],
           .last_gradient_ns = last[r],
           .end_ns = end,
           .exposed_work_ns = made_up_ns(work_ms),
           .exposed_wait_ns = all - last[r] + made_up_ns(ranks[r].transfer_ms),
           .buckets = buckets,
           .buckets_complete_at_last_gradient = buckets_complete,
           .gradient_bytes = 1 << 20});
      const std::uint64_t optimized = end + made_up_ns(ranks[r].optimizer_ms);
      begin[r] = optimized + made_up_ns(ranks[r].data_ms);
      auto& spans = run.timeline.ranks[r].spans;
      spans.push_back({.begin_ns = end, .end_ns = optimized, .value = 0, .name = 2, .thread = 0});
      spans.push_back({.begin_ns = optimized, .end_ns = begin[r], .value = 0, .name = 1, .thread = 0});
    }
  }
  for (std::size_t r = 0; r < ranks.size(); ++r)
    run.record->ranks.push_back(made_up_record(static_cast<int>(r), begin[r], ranks[r].cores));
  return run;
}

/// A program that calls all_reduce every 10 ms, without training; `late` comes so much later.
inline RunData made_up_calls(int ranks, int calls, int late, double late_ms) {
  RunData run{.name = "calls"};
  run.timeline.job = "4f2a";
  run.timeline.groups = {{7, "world"}};
  run.record = trace::FlightRecord{.job = "4f2a", .host = "a", .written_at = "now"};
  for (int rank = 0; rank < ranks; ++rank) {
    RankTimeline timeline{.rank = rank, .pid = 1, .host = "a"};
    trace::TotalsRow total{.of = {.group = 7, .operation = Operation::all_reduce, .size_bin = 9}};
    for (int call = 0; call < calls; ++call) {
      const std::uint64_t all = made_up_ns(10.0 * call + late_ms),
                          begin = rank == late ? all : made_up_ns(10.0 * call);
      trace::CollectiveEvent event{};
      event.sequence = static_cast<std::uint64_t>(call);
      event.elements = 1000;
      event.begin_ns = begin;
      event.arrived_ns = all;
      event.end_ns = all + made_up_ms;
      event.group = 7;
      event.operation = Operation::all_reduce;
      event.dtype = Dtype::u8;
      timeline.calls.push_back(event);
      const std::uint64_t took = event.end_ns - begin;
      total.totals = {.calls = total.totals.calls + 1,
                      .bytes = total.totals.bytes + 1000,
                      .ns = total.totals.ns + took,
                      .waited_ns = total.totals.waited_ns + all - begin,
                      .blocked_ns = total.totals.blocked_ns + took};
    }
    run.timeline.ranks.push_back(std::move(timeline));
    run.record->ranks.push_back(made_up_record(rank, made_up_ns(10.0 * calls), 1));
    run.record->ranks.back().totals = {total};
  }
  return run;
}

}  // namespace lockstep::view
