#include "lockstep/view/profile/timeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "lockstep/base/file.h"
#include "lockstep/base/words.h"
#include "lockstep/view/profile/free_rows.h"
#include "lockstep/view/profile/horovod_timeline.h"
#include "lockstep/view/profile/timeline_format.h"
#include "lockstep/view/profile/timeline_text.h"

namespace lockstep::view {
namespace {

using trace::CollectiveEvent;
using trace::SpanEvent;
using trace::TrainingStepEvent;

std::uint64_t bytes_of(const CollectiveEvent& call) { return call.elements * size_of(call.dtype); }

template <class Event>
std::vector<const Event*> in_order(const std::vector<Event>& events) {
  std::vector<const Event*> ordered;
  for (const Event& event : events) ordered.push_back(&event);
  std::ranges::stable_sort(ordered, {}, &Event::begin_ns);
  return ordered;
}

class Writer {
 public:
  Writer(const Timeline& timeline, TimelineFormat& into) : timeline_(timeline), into_(into) {
    for (const auto& [number, name] : timeline.groups) groups_[number] = name;
    begin_ns_ = first_moment();
  }

  void run() {
    into_.begin(timeline_);
    for (const RankTimeline& rank : timeline_.ranks) {
      into_.name_rank(rank.rank, fmt::format("rank {} ({}, pid {})", rank.rank, rank.host, rank.pid));
      add_steps(rank);
      add_calls(rank);
      add_named(rank);
      add_spans(rank);
      add_mpi_calls(rank);
      if (rank.left_out > 0) say_left_out(rank);
    }
    into_.end();
  }

 private:
  std::uint64_t first_moment() const {
    std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
    for (const RankTimeline& rank : timeline_.ranks) {
      for (const auto& call : rank.calls) first = std::min(first, call.begin_ns);
      for (const auto& step : rank.steps) first = std::min(first, step.begin_ns);
      for (const auto& span : rank.spans) first = std::min(first, span.begin_ns);
      for (const auto& call : rank.mpi_calls) first = std::min(first, call.begin_ns);
    }
    return first;
  }
  std::uint64_t from_begin(std::uint64_t ns) const { return ns - std::min(ns, begin_ns_); }
  void range(int row, std::string_view name, std::string_view kind, std::uint64_t begin, std::uint64_t end,
             std::span<const RangeValue> values = {}) {
    into_.add_range(row, name, kind, from_begin(begin), from_begin(std::max(begin, end)), values);
  }

  void add_steps(const RankTimeline& rank) {
    FreeRows rows;
    for (const TrainingStepEvent* step : in_order(rank.steps)) {
      const auto [index, is_new] = rows.take(step->begin_ns, step->end_ns);
      const int row = first_training_row + index;
      if (is_new) into_.name_row(row, "training");
      range(row, fmt::format("step {}", step->step), "training", step->begin_ns, step->end_ns, about(*step));
      const std::uint64_t last =
          std::clamp(step->last_gradient_ns, step->begin_ns, std::max(step->begin_ns, step->end_ns));
      range(row, "forward, backward", "training", step->begin_ns, last);
      range(row, "after the last gradient", "training", last, step->end_ns);
    }
  }
  static std::array<RangeValue, 5> about(const TrainingStepEvent& step) {
    return {{{"exposed_work_us", static_cast<double>(step.exposed_work_ns) / 1e3},
             {"exposed_wait_us", static_cast<double>(step.exposed_wait_ns) / 1e3},
             {"gradient_bytes", std::uint64_t{step.gradient_bytes}},
             {"buckets", std::uint64_t{step.buckets}},
             {"buckets_complete_at_last_gradient", std::uint64_t{step.buckets_complete_at_last_gradient}}}};
  }

  void add_calls(const RankTimeline& rank) {
    FreeRows rows;
    for (const CollectiveEvent* call : in_order(rank.calls)) {
      const auto [index, is_new] = rows.take(call->begin_ns, call->end_ns);
      if (is_new)
        into_.name_row(first_call_row + index,
                       index == 0 ? "calls" : fmt::format("calls under way at once, {}", index + 1));
      add_call(first_call_row + index, *call);
    }
  }
  void add_call(int row, const CollectiveEvent& call) {
    const std::string_view algorithm(call.algorithm, ::strnlen(call.algorithm, sizeof(call.algorithm)));
    const std::array<RangeValue, 6> about{{{"group", group_named(call.group)},
                                           {"number", std::uint64_t{call.sequence}},
                                           {"bytes", bytes_of(call)},
                                           {"dtype", to_string(call.dtype)},
                                           {"algorithm", algorithm},
                                           {"failed", call.failed != 0}}};
    range(row, to_string(call.operation), "call", call.begin_ns, call.end_ns, about);
    add_waiting_and_transfer(row, "call", call);
  }
  template <class Call>
  void add_waiting_and_transfer(int row, const char* kind, const Call& call) {
    const std::uint64_t arrived =
        std::clamp(call.arrived_ns, call.begin_ns, std::max(call.begin_ns, call.end_ns));
    if (arrived > call.begin_ns) range(row, "waiting for others", kind, call.begin_ns, arrived);
    if (call.end_ns > arrived) range(row, "transfer", kind, arrived, call.end_ns);
  }
  std::string_view group_named(std::uint32_t number) const {
    const auto group = groups_.find(number);
    return group == groups_.end() ? std::string_view("?") : group->second;
  }

  void add_named(const RankTimeline& rank) {
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> negotiated;  // name, begin -> end
    std::vector<SpanEvent> operations;
    for (const SpanEvent& span : rank.spans) {
      const auto named = trace::named_span(span);
      if (!named) continue;
      if (named->part == trace::NamedSpan::Part::negotiation)
        negotiated[{span.name, span.begin_ns}] = span.end_ns;
      else
        operations.push_back(span);
    }
    FreeRows rows;
    for (const SpanEvent* span : in_order(operations)) {
      const auto named = *trace::named_span(*span);
      const auto [index, is_new] = rows.take(span->begin_ns, span->end_ns);
      const int row = first_named_row + index;
      if (is_new)
        into_.name_row(row, index == 0 ? "named operations" : fmt::format("named operations, {}", index + 1));
      const std::array<RangeValue, 3> about{{{"operation", to_string(named.operation)},
                                             {"dtype", to_string(named.dtype)},
                                             {"elements", elements_of(*span)}}};
      range(row, name_of(rank, *span), "named", span->begin_ns, span->end_ns, about);
      const auto end = negotiated.find({span->name, span->begin_ns});
      if (end != negotiated.end() && end->second > span->begin_ns)
        range(row, "waiting for others to submit it", "named", span->begin_ns,
              std::min(end->second, std::max(span->begin_ns, span->end_ns)));
    }
  }

  void add_mpi_calls(const RankTimeline& rank) {
    std::map<std::uint32_t, std::uint64_t> ends;  // by threads
    for (const MpiCall& call : rank.mpi_calls) ends[call.thread] = 0;
    for (const auto& [thread, end] : ends)
      into_.name_row(mpi_row(thread),
                     ends.size() == 1 ? "MPI calls" : fmt::format("MPI calls, thread {}", thread));
    std::vector<MpiCall> calls;
    for (const MpiCall* recorded : in_order(rank.mpi_calls)) {
      MpiCall& call = calls.emplace_back(*recorded);
      std::uint64_t& end = ends[call.thread];
      call.begin_ns = std::max(call.begin_ns, end);  // ranges of a row may not overlap
      end = call.end_ns = std::max(call.begin_ns, call.end_ns);
    }
    for (const MpiCall* call : in_order(calls)) {
      range(mpi_row(call->thread), call->routine, "mpi", call->begin_ns, call->end_ns, about(*call));
      if (call->has_arrived) add_waiting_and_transfer(mpi_row(call->thread), "mpi", *call);
    }
  }
  static int mpi_row(std::uint32_t thread) { return first_thread_row + static_cast<int>(thread % 1000000); }
  std::vector<RangeValue> about(const MpiCall& call) const {
    std::vector<RangeValue> values;
    const auto add_rank = [&](std::string_view name, std::int32_t rank) {
      const std::string_view word = mpi_rank_name(rank);
      if (word.empty())
        values.push_back({name, std::int64_t{rank}});
      else
        values.push_back({name, word});
    };
    if (call.has_bytes) values.push_back({"bytes", std::uint64_t{call.bytes}});
    if (call.communicator != 0) values.push_back({"communicator", group_named(call.communicator)});
    switch (call.peers) {
      case MpiPeers::none: break;
      case MpiPeers::root: add_rank("root", call.peer); break;
      case MpiPeers::target: add_rank("target", call.peer); break;
      case MpiPeers::to: add_rank("to", call.peer); break;
      case MpiPeers::from: add_rank("from", call.source); break;
      case MpiPeers::to_and_from:
        add_rank("to", call.peer);
        add_rank("from", call.source);
        break;
    }
    if (!call.has_returned) values.push_back({"returned", false});
    return values;
  }

  void add_spans(const RankTimeline& rank) {
    std::map<std::uint32_t, bool> named;
    for (const SpanEvent& span : rank.spans) {
      const std::string_view name = name_of(rank, span);
      if (span.thread == trace::counter_thread) {
        into_.add_counter(name, from_begin(span.begin_ns), span.value);
        continue;
      }
      if (!trace::is_of_thread(span)) continue;
      const int row = first_thread_row + static_cast<int>(span.thread % 1000000);
      if (!std::exchange(named[span.thread], true))
        into_.name_row(row, fmt::format("thread {}", span.thread));
      range(row, name, "program", span.begin_ns, span.end_ns);
    }
  }

  void say_left_out(const RankTimeline& rank) {
    into_.add_remark(base::counted(static_cast<std::int64_t>(rank.left_out), "event") +
                     " of this rank had no room and are not here" +
                     (rank.left_out_when.empty() ? "" : ": " + rank.left_out_when));
  }

  const Timeline& timeline_;
  TimelineFormat& into_;
  std::map<std::uint32_t, std::string> groups_;
  std::uint64_t begin_ns_ = 0;
};

}  // namespace

void shift_times(RankTimeline& rank, const std::function<std::uint64_t(std::uint64_t)>& to_ours) {
  const auto shift = [&](std::uint64_t& time) {
    if (time != 0) time = to_ours(time);
  };
  for (auto& call : rank.calls) {
    for (std::uint64_t* time : {&call.begin_ns, &call.arrived_ns, &call.end_ns}) shift(*time);
  }
  for (auto& step : rank.steps) {
    for (std::uint64_t* time : {&step.begin_ns, &step.last_gradient_ns, &step.end_ns}) shift(*time);
  }
  for (auto& span : rank.spans) {
    for (std::uint64_t* time : {&span.begin_ns, &span.end_ns}) shift(*time);
  }
}

bool is_perfettos(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".pftrace" || extension == ".perfetto-trace";
}

void write_timeline(const Timeline& timeline, const std::function<void(std::string_view)>& write,
                    bool in_perfettos) {
  if (timeline.names == TimelineNames::horovod) return write_horovod_timeline(timeline, write);
  Writer(timeline, *(in_perfettos ? perfetto_format(write) : json_format(write))).run();
}

void write_timeline_file(const std::filesystem::path& path, const Timeline& timeline) {
  FileReplacement file(path, "timeline");
  write_timeline(
      timeline, [&](std::string_view text) { file.write(std::as_bytes(std::span(text))); },
      is_perfettos(path));
  static_cast<void>(file.commit());
}

std::string timeline_line(const std::string& path, const Timeline& timeline) {
  std::uint64_t left_out = 0;
  for (const RankTimeline& rank : timeline.ranks) left_out += rank.left_out;
  std::string line =
      fmt::format("timeline of {} in {}{}; https://ui.perfetto.dev opens it",
                  base::counted(static_cast<std::int64_t>(timeline.ranks.size()), "rank"), path,
                  timeline.names == TimelineNames::horovod ? ", with Horovod's names" : "");
  if (timeline.clock_error_ns > 0)
    line += fmt::format("; clocks of hosts agree within {}", base::duration(timeline.clock_error_ns));
  if (left_out > 0)
    line += fmt::format("; {} had no room", base::counted(static_cast<std::int64_t>(left_out), "event"));
  for (const std::string& note : timeline.notes) line += "; " + note;
  return line;
}

std::string leave_timeline(const std::string& path, const Timeline& timeline, const std::string& speaker) {
  try {
    write_timeline_file(path, timeline);
  } catch (const std::exception& error) {
    return fmt::format("{}: the timeline could not be written: {}\n", speaker, error.what());
  }
  return speaker + ": " + timeline_line(path, timeline) + "\n";
}

}  // namespace lockstep::view
