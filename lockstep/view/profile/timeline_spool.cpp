#include "lockstep/view/profile/timeline_spool.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "lockstep/base/words.h"
#include "lockstep/trace/clock.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/view/profile/time_slices.h"

namespace lockstep::view {
namespace {

constexpr std::chrono::milliseconds between_looks{20};

std::uint64_t overwritten(std::uint64_t from, std::uint64_t to, std::size_t read) {
  const std::uint64_t passed = to > from ? to - from : 0;
  return passed > read ? passed - read : 0;
}

std::uint64_t time_of_day_now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

TimelineSpool::TimelineSpool(std::size_t most_of_rank, const ControlPage& page)
    : page_(&page),
      most_of_rank_(std::max<std::size_t>(most_of_rank, 2)),
      time_of_day_offset_ns_(time_of_day_now_ns() - trace::now_ns()),
      next_(Deadline::after(between_looks)) {}

TimelineSpool::TimelineSpool(const ControlPage& page, const std::vector<int>& ranks, std::size_t most)
    : TimelineSpool(most / ranks.size(), page) {
  for (const int rank : ranks) add(static_cast<int>(ranks_.size()), rank);
}

TimelineSpool TimelineSpool::from_now(const ControlPage& page, int place, int rank, std::size_t most) {
  TimelineSpool spool(most, page);
  spool.add(place, rank);
  Rank& only = spool.ranks_.front();
  const trace::Recorder recorder(&page.record(place));
  only.calls = recorder.collectives();
  only.steps = recorder.steps();
  std::uint64_t earlier = 0;
  (void)trace::read_spans(page.spans(place), only.spans, earlier);
  return spool;
}

void TimelineSpool::add(int place, int rank) {
  ranks_.push_back({.place = place});
  ranks_.back().timeline.rank = rank;
  ranks_.back().timeline.host = base::host_name();
}

void TimelineSpool::look() {
  if (!next_.expired()) return;
  next_ = Deadline::after(between_looks);
  for (Rank& rank : ranks_) read(rank);
}

std::vector<RankTimeline> TimelineSpool::take() {
  std::vector<RankTimeline> all;
  for (Rank& rank : ranks_) all.push_back(std::move(finish(rank)));
  return all;
}

std::vector<RankTimeline> TimelineSpool::copy() {
  std::vector<RankTimeline> all;
  for (Rank& rank : ranks_) all.push_back(finish(rank));
  return all;
}

RankTimeline& TimelineSpool::finish(Rank& rank) {
  read(rank);
  rank.timeline.pid = std::max(page_->status(rank.place).pid.load(), 0);
  rank.timeline.span_names = trace::read_span_names(page_->spans(rank.place));
  return rank.timeline;
}

void TimelineSpool::read(Rank& rank) {
  RankTimeline& timeline = rank.timeline;
  const trace::Recorder recorder(&page_->record(rank.place));
  const std::uint64_t calls_end = recorder.collectives(), steps_end = recorder.steps();
  const auto calls = recorder.collectives_since(rank.calls);
  const auto steps = recorder.steps_since(rank.steps);
  const auto spans = trace::read_spans(page_->spans(rank.place), rank.spans, timeline.left_out);
  timeline.left_out +=
      overwritten(rank.calls, calls_end, calls.size()) + overwritten(rank.steps, steps_end, steps.size());
  // What came while they were read was read as well.
  rank.calls = std::max(calls_end, rank.calls + calls.size());
  rank.steps = std::max(steps_end, rank.steps + steps.size());
  keep(rank, timeline.calls, calls);
  keep(rank, timeline.steps, steps);
  keep(rank, timeline.spans, spans);
}

template <class Event>
void TimelineSpool::keep(Rank& rank, std::vector<Event>& into, const std::vector<Event>& events) {
  for (const Event& event : events) {
    if (!is_in_kept_slice(time_of_day_ns(event.begin_ns), rank.kept_of)) {
      ++rank.timeline.left_out;
      continue;
    }
    into.push_back(event);
    const RankTimeline& has = rank.timeline;
    if (has.calls.size() + has.steps.size() + has.spans.size() < most_of_rank_) continue;
    rank.timeline.left_out += thin_out(std::array{&rank.timeline}, rank.kept_of,
                                       [&](const auto& one) { return time_of_day_ns(one.begin_ns); });
  }
}

}  // namespace lockstep::view
