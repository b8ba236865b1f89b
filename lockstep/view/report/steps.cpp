#include "lockstep/view/report/steps.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "lockstep/base/size_bin.h"
#include "lockstep/view/report/thresholds.h"

namespace lockstep::view {
namespace {

using trace::CollectiveEvent;
using trace::TrainingStepEvent;

// The most special first.
constexpr Phase layers[] = {Phase::others,     Phase::transfer,  Phase::data,
                            Phase::checkpoint, Phase::optimizer, Phase::compute};

struct Range {
  std::uint64_t begin_ns, end_ns;
  Phase phase;
};

struct Edge {
  std::uint64_t at_ns;
  int change;
  std::size_t layer;
};

/// Whether the record's steps begin with the last gradient, as those of a ShardedOptimizer do.
bool begins_with_its_gradients(const TrainingStepEvent& step) {
  return step.last_gradient_ns <= step.begin_ns;
}

/// That of the training loop: ranges of other threads are not in its way.
std::uint32_t main_thread_of(const RankTimeline& rank) {
  for (const std::string_view name : {"forward", "optimizer", "data"}) {
    const auto found = std::ranges::find_if(rank.spans, [&](const trace::SpanEvent& span) {
      return trace::is_of_thread(span) && name_of(rank, span) == name;
    });
    if (found != rank.spans.end()) return found->thread;
  }
  return 0;
}

std::optional<Phase> phase_named(std::string_view name) {
  if (name == "data") return Phase::data;
  if (name == "optimizer") return Phase::optimizer;
  if (name == "checkpoint") return Phase::checkpoint;
  if (name == "forward") return Phase::compute;
  return std::nullopt;
}

/// Moves up to `ns` from the first of these phases that have it; returns what was there.
double take_from(PhaseTimes& times, std::initializer_list<Phase> phases, double ns) {
  double taken = 0;
  for (const Phase phase : phases) {
    const double part = std::min(time_of(times, phase), ns - taken);
    time_of(times, phase) -= part;
    taken += part;
  }
  return taken;
}

/// The event's own account of what was exposed. `latest_ns`: when the last rank had its last gradient.
void take_exposed(StepsOfRank::Step& step, std::uint64_t latest_ns) {
  const TrainingStepEvent& event = *step.event;
  const double work = take_from(step.times, {Phase::compute, Phase::optimizer, Phase::rest},
                                static_cast<double>(event.exposed_work_ns));
  const double wait = take_from(step.times, {Phase::compute, Phase::optimizer, Phase::rest},
                                static_cast<double>(event.exposed_wait_ns));
  const std::uint64_t early =
      latest_ns - std::min(latest_ns, std::max(event.last_gradient_ns, event.begin_ns));
  const double for_others = std::min(wait, static_cast<double>(early));
  time_of(step.times, Phase::others) += for_others;
  time_of(step.times, Phase::transfer) += work + wait - for_others;
}

/// One step on all ranks that train.
struct Sample {
  StepsOfRank::Key key = {};
  std::vector<StepsOfRank::Step*> of_ranks = {};

  double duration_ns() const {
    double sum = 0;
    for (const StepsOfRank::Step* step : of_ranks) sum += step->duration_ns;
    return sum / static_cast<double>(of_ranks.size());
  }
};

/// Those that are whole on all ranks, in the order of time, each with what was exposed in it.
std::vector<Sample> samples_of(std::vector<StepsOfRank>& ranks) {
  std::vector<StepsOfRank*> training;
  for (StepsOfRank& rank : ranks) {
    if (!rank.steps().empty()) training.push_back(&rank);
  }
  std::vector<Sample> samples;
  if (training.empty()) return samples;
  for (const auto& [key, first] : training.front()->steps()) {
    Sample sample{.key = key};
    for (StepsOfRank* rank : training) {
      const auto found = rank->steps().find(key);
      if (found != rank->steps().end() && found->second.duration_ns > 0)
        sample.of_ranks.push_back(&found->second);
    }
    if (sample.of_ranks.size() == training.size()) samples.push_back(std::move(sample));
  }
  for (const Sample& sample : samples) {
    std::uint64_t latest = 0;
    for (const StepsOfRank::Step* step : sample.of_ranks)
      latest = std::max(latest, step->event->last_gradient_ns);
    for (StepsOfRank::Step* step : sample.of_ranks) take_exposed(*step, latest);
  }
  std::ranges::stable_sort(samples, {},
                           [](const Sample& sample) { return sample.of_ranks.front()->event->begin_ns; });
  return samples;
}

void leave_out_long_ones(std::vector<Sample>& samples, StepFacts& facts) {
  std::vector<double> durations;
  for (const Sample& sample : samples) durations.push_back(sample.duration_ns());
  facts.median_ns = median_of(durations);
  const auto is_long = [&](double duration) { return duration > Thresholds::long_step * facts.median_ns; };
  std::erase_if(samples, [&](const Sample& sample) { return is_long(sample.duration_ns()); });
  std::vector<double> deviations;
  for (const double duration : durations) {
    if (!is_long(duration)) {
      deviations.push_back(std::abs(duration - facts.median_ns));
      continue;
    }
    ++facts.long_steps;
    facts.long_extra_ns += duration - facts.median_ns;
  }
  facts.steps = samples.size();
  // Of a normal distribution: its deviation from the median one, and the error of a median from that.
  facts.median_error_ns =
      1.2533 * 1.4826 * median_of(deviations) / std::sqrt(static_cast<double>(samples.size()));
}

void add_means_of(const std::vector<Sample>& samples, const std::vector<StepsOfRank>& ranks,
                  StepFacts& facts) {
  facts.by_rank.resize(ranks.size());
  const auto count = static_cast<double>(samples.size());
  for (const Sample& sample : samples) {
    auto next = sample.of_ranks.begin();
    const double share = 1 / (count * static_cast<double>(sample.of_ranks.size()));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (ranks[rank].steps().empty()) continue;
      const StepsOfRank::Step& step = **next++;
      for (std::size_t p = 0; p < phase_count; ++p) {
        facts.by_rank[rank][p] += step.times[p] / count;
        facts.mean[p] += step.times[p] * share;
      }
      facts.mean_ns += step.duration_ns * share;
      facts.gradient_bytes += static_cast<double>(step.event->gradient_bytes) * share;
      facts.buckets += step.event->buckets * share;
      facts.buckets_complete += step.event->buckets_complete_at_last_gradient * share;
    }
  }
}

}  // namespace

BlockingCalls::BlockingCalls(const trace::FlightRank* rank) {
  if (rank == nullptr) return;
  for (const trace::TotalsRow& row : rank->totals) {
    if (row.totals.blocked_ns * 2 < row.totals.ns) asynchronous_.emplace(row.of.operation, row.of.size_bin);
  }
}

bool BlockingCalls::contains(const CollectiveEvent& call) const {
  return !asynchronous_.contains({call.operation, base::size_bin(call.elements * size_of(call.dtype))});
}

StepsOfRank::StepsOfRank(const RankTimeline& rank, const trace::FlightRank* record) {
  for (const TrainingStepEvent& step : rank.steps) ordered_.push_back(&step);
  std::ranges::stable_sort(ordered_, {}, &TrainingStepEvent::begin_ns);
  std::map<std::uint64_t, int> seen;
  for (const TrainingStepEvent* step : ordered_) {
    keys_.emplace_back(step->step, seen[step->step]++);
    steps_[keys_.back()].event = step;
  }
  for (std::size_t i = 0; i + 1 < ordered_.size(); ++i) {
    const std::uint64_t number = ordered_[i]->step, next = ordered_[i + 1]->step;
    if (next == number || next == number + 1)  // else some are missing between them
      steps_[keys_[i]].duration_ns = static_cast<double>(ordered_[i + 1]->begin_ns - ordered_[i]->begin_ns);
  }
  const std::uint32_t thread = main_thread_of(rank);
  for (const trace::SpanEvent& span : rank.spans) {
    if (span.thread == thread && name_of(rank, span) == "forward")
      forwards_.emplace_back(span.begin_ns, span.end_ns);
  }
  std::ranges::sort(forwards_);
  for (const CollectiveEvent& call : rank.calls) calls_.push_back(&call);
  std::ranges::stable_sort(calls_, {}, &CollectiveEvent::begin_ns);
  if (ordered_.size() > 1) paint(rank, BlockingCalls(record));
}

bool StepsOfRank::is_of_a_step(const CollectiveEvent& call) const {
  const auto after =
      std::ranges::upper_bound(ordered_, call.begin_ns, {}, [](const auto* step) { return step->begin_ns; });
  if (after == ordered_.begin() || call.begin_ns >= (*std::prev(after))->end_ns) return false;
  const auto forward =
      std::ranges::upper_bound(forwards_, call.begin_ns, {}, [](const auto& f) { return f.first; });
  return forward == forwards_.begin() || call.begin_ns >= std::prev(forward)->second;
}

void StepsOfRank::paint(const RankTimeline& rank, const BlockingCalls& blocking) {
  std::vector<Range> ranges;
  for (const TrainingStepEvent* step : ordered_)
    ranges.push_back(
        {step->begin_ns, step->end_ns, begins_with_its_gradients(*step) ? Phase::optimizer : Phase::compute});
  const std::uint32_t thread = main_thread_of(rank);
  for (const trace::SpanEvent& span : rank.spans) {
    const auto phase = phase_named(name_of(rank, span));
    if (phase && span.thread == thread) ranges.push_back({span.begin_ns, span.end_ns, *phase});
  }
  for (const CollectiveEvent* call : calls_) {
    if (is_of_a_step(*call) || !blocking.contains(*call)) continue;
    ranges.push_back({call->begin_ns, call->arrived_ns, Phase::others});
    ranges.push_back({call->arrived_ns, call->end_ns, Phase::transfer});
  }
  std::vector<Edge> edges;
  for (const Range& range : ranges) {
    if (range.end_ns <= range.begin_ns) continue;
    const auto layer = static_cast<std::size_t>(std::ranges::find(layers, range.phase) - layers);
    edges.push_back({range.begin_ns, 1, layer});
    edges.push_back({range.end_ns, -1, layer});
  }
  for (const TrainingStepEvent* step : ordered_) edges.push_back({step->begin_ns, 0, 0});
  std::ranges::sort(edges, {}, &Edge::at_ns);
  std::array<int, std::size(layers)> open{};
  std::size_t step = 0;  // how many have begun
  std::uint64_t at = 0;
  for (const Edge& edge : edges) {
    if (step > 0 && edge.at_ns > at) {
      Step& of = steps_[keys_[step - 1]];
      const auto top = std::ranges::find_if(open, [](int count) { return count > 0; });
      const Phase unnamed = begins_with_its_gradients(*of.event) ? Phase::compute : Phase::rest;
      time_of(of.times, top == open.end() ? unnamed : layers[top - open.begin()]) +=
          static_cast<double>(edge.at_ns - at);
    }
    at = edge.at_ns;
    while (step < ordered_.size() && ordered_[step]->begin_ns <= at) ++step;
    open[edge.layer] += edge.change;
  }
}

void StepsOfRank::add_calls(const std::set<Key>& of, StepFacts& facts) const {
  auto call = calls_.begin();
  for (std::size_t i = 0; i < ordered_.size(); ++i) {
    const TrainingStepEvent& step = *ordered_[i];
    if (!of.contains(keys_[i])) continue;
    while (call != calls_.end() && (*call)->begin_ns < step.begin_ns) ++call;
    std::uint64_t until = 0;  // calls that overlap count once
    for (std::size_t place = 0; call != calls_.end() && (*call)->begin_ns < step.end_ns; ++call) {
      if (is_message((*call)->operation) || !is_of_a_step(**call)) continue;
      const std::uint64_t begin = std::max((*call)->begin_ns, until),
                          end = std::min((*call)->end_ns, step.end_ns);
      const std::uint64_t last = std::clamp(step.last_gradient_ns, step.begin_ns, step.end_ns);
      const auto length = [](std::uint64_t from, std::uint64_t to) {
        return static_cast<double>(to > from ? to - from : 0);
      };
      facts.under_way_ns += length(begin, end);
      facts.covered_ns += length(begin, std::min(end, last));
      until = std::max(until, end);
      constexpr std::size_t most_places = 64;
      if (place == most_places) continue;
      if (facts.calls.size() <= place) facts.calls.resize(place + 1);
      StepCall& sum = facts.calls[place++];
      sum.operation = (*call)->operation;
      sum.bytes += static_cast<double>((*call)->elements * size_of((*call)->dtype));
      sum.under_way_ns += length((*call)->begin_ns, (*call)->end_ns);
      sum.exposed_ns += length(std::max((*call)->begin_ns, last), (*call)->end_ns);
      ++sum.count;
    }
  }
}

std::optional<StepFacts> step_facts(std::vector<StepsOfRank>& ranks) {
  std::vector<Sample> samples = samples_of(ranks);
  StepFacts facts;
  facts.warm_up = std::min(Thresholds::warm_up_steps, samples.size() / 4);
  samples.erase(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(facts.warm_up));
  if (samples.empty()) return std::nullopt;
  leave_out_long_ones(samples, facts);
  add_means_of(samples, ranks, facts);
  std::set<StepsOfRank::Key> kept;
  for (const Sample& sample : samples) kept.insert(sample.key);
  for (const StepsOfRank& rank : ranks) rank.add_calls(kept, facts);
  const double steps =
      static_cast<double>(samples.size()) * static_cast<double>(samples.front().of_ranks.size());
  facts.under_way_ns /= steps;
  facts.covered_ns /= steps;
  for (StepCall& call : facts.calls) {
    const auto times = static_cast<double>(call.count);
    call.bytes /= times;
    call.under_way_ns /= times;
    call.exposed_ns /= times;
  }
  return facts;
}

}  // namespace lockstep::view
