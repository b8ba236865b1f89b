#include "lockstep/view/profile/timeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "lockstep/base/file.h"
#include "lockstep/base/words.h"
#include "lockstep/view/profile/free_rows.h"
#include "lockstep/view/profile/horovod_timeline.h"
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
  Writer(const Timeline& timeline, const std::function<void(std::string_view)>& write)
      : timeline_(timeline), out_(write) {
    for (const auto& [number, name] : timeline.groups) groups_[number] = in_json(name);
    begin_ns_ = first_moment();
  }

  void run() {
    out_.text() = fmt::format(
        "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"job\":{},\"clock_error_us\":{:.3f}{}}},"
        "\"traceEvents\":"
        "[",
        in_json(timeline_.job), static_cast<double>(timeline_.clock_error_ns) / 1e3, notes());
    for (const RankTimeline& rank : timeline_.ranks) {
      name_rank(rank);
      add_steps(rank);
      add_calls(rank);
      add_named(rank);
      add_spans(rank);
      add_mpi_calls(rank);
      if (rank.left_out > 0) say_left_out(rank);
    }
    out_.text() += "\n]}\n";
    out_.flush();
  }

 private:
  std::string notes() const {
    std::string text;
    for (const std::string& note : timeline_.notes) text += (text.empty() ? "" : ",") + in_json(note);
    return text.empty() ? "" : ",\"notes\":[" + text + "]";
  }
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
  double us(std::uint64_t ns) const { return static_cast<double>(ns - std::min(ns, begin_ns_)) / 1e3; }

  std::back_insert_iterator<std::string> begin_event() {
    std::string& text = out_.text();
    text += is_first_ ? "\n" : ",\n";
    is_first_ = false;
    return std::back_inserter(text);
  }
  /// `arguments`: "" or `"bytes":12,...`.
  void range(int rank, int row, const std::string& name, const char* kind, std::uint64_t begin,
             std::uint64_t end, const std::string& arguments = "") {
    fmt::format_to(
        begin_event(),
        R"({{"ph":"X","pid":{},"tid":{},"name":{},"cat":"{}","ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})", rank,
        row, name, kind, us(begin), us(std::max(begin, end)) - us(begin), arguments);
  }
  void meta(int rank, int row, const char* what, const std::string& arguments) {
    fmt::format_to(begin_event(), R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{{}}}}})", rank, row,
                   what, arguments);
  }
  void name_row(int rank, int row, const std::string& name) {
    meta(rank, row, "thread_name", "\"name\":" + in_json(name));
    meta(rank, row, "thread_sort_index", fmt::format("\"sort_index\":{}", row));
  }
  void name_rank(const RankTimeline& rank) {
    meta(rank.rank, 0, "process_name",
         "\"name\":" + in_json(fmt::format("rank {} ({}, pid {})", rank.rank, rank.host, rank.pid)));
    meta(rank.rank, 0, "process_sort_index", fmt::format("\"sort_index\":{}", rank.rank));
  }

  void add_steps(const RankTimeline& rank) {
    FreeRows rows;
    for (const TrainingStepEvent* step : in_order(rank.steps)) {
      const auto [index, is_new] = rows.take(step->begin_ns, step->end_ns);
      const int row = first_training_row + index;
      if (is_new) name_row(rank.rank, row, "training");
      range(rank.rank, row, in_json(fmt::format("step {}", step->step)), "training", step->begin_ns,
            step->end_ns, about(*step));
      const std::uint64_t last =
          std::clamp(step->last_gradient_ns, step->begin_ns, std::max(step->begin_ns, step->end_ns));
      range(rank.rank, row, "\"forward, backward\"", "training", step->begin_ns, last);
      range(rank.rank, row, "\"after the last gradient\"", "training", last, step->end_ns);
    }
  }
  static std::string about(const TrainingStepEvent& step) {
    return fmt::format(
        R"("exposed_work_us":{:.3f},"exposed_wait_us":{:.3f},"gradient_bytes":{},"buckets":{},"buckets_complete_at_last_gradient":{})",
        static_cast<double>(step.exposed_work_ns) / 1e3, static_cast<double>(step.exposed_wait_ns) / 1e3,
        step.gradient_bytes, step.buckets, step.buckets_complete_at_last_gradient);
  }

  void add_calls(const RankTimeline& rank) {
    FreeRows rows;
    for (const CollectiveEvent* call : in_order(rank.calls)) {
      const auto [index, is_new] = rows.take(call->begin_ns, call->end_ns);
      if (is_new)
        name_row(rank.rank, first_call_row + index,
                 index == 0 ? "calls" : fmt::format("calls under way at once, {}", index + 1));
      add_call(rank.rank, first_call_row + index, *call);
    }
  }
  void add_call(int rank, int row, const CollectiveEvent& call) {
    const std::string algorithm(call.algorithm, ::strnlen(call.algorithm, sizeof(call.algorithm)));
    range(rank, row, in_json(to_string(call.operation)), "call", call.begin_ns, call.end_ns,
          fmt::format(R"("group":{},"number":{},"bytes":{},"dtype":"{}","algorithm":{},"failed":{})",
                      group_named(call.group), call.sequence, bytes_of(call), to_string(call.dtype),
                      in_json(algorithm), call.failed != 0));
    add_waiting_and_transfer(rank, row, "call", call);
  }
  template <class Call>
  void add_waiting_and_transfer(int rank, int row, const char* kind, const Call& call) {
    const std::uint64_t arrived =
        std::clamp(call.arrived_ns, call.begin_ns, std::max(call.begin_ns, call.end_ns));
    if (arrived > call.begin_ns) range(rank, row, "\"waiting for others\"", kind, call.begin_ns, arrived);
    if (call.end_ns > arrived) range(rank, row, "\"transfer\"", kind, arrived, call.end_ns);
  }
  std::string group_named(std::uint32_t number) const {
    const auto group = groups_.find(number);
    return group == groups_.end() ? "\"?\"" : group->second;
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
        name_row(rank.rank, row,
                 index == 0 ? "named operations" : fmt::format("named operations, {}", index + 1));
      range(rank.rank, row, in_json(name_of(rank, *span)), "named", span->begin_ns, span->end_ns,
            fmt::format(R"("operation":"{}","dtype":"{}","elements":{})", to_string(named.operation),
                        to_string(named.dtype), elements_of(*span)));
      const auto end = negotiated.find({span->name, span->begin_ns});
      if (end != negotiated.end() && end->second > span->begin_ns)
        range(rank.rank, row, "\"waiting for others to submit it\"", "named", span->begin_ns,
              std::min(end->second, std::max(span->begin_ns, span->end_ns)));
    }
  }

  void add_mpi_calls(const RankTimeline& rank) {
    std::map<std::uint32_t, std::uint64_t> ends;  // by threads
    for (const MpiCall& call : rank.mpi_calls) ends[call.thread] = 0;
    for (const auto& [thread, end] : ends)
      name_row(rank.rank, mpi_row(thread),
               ends.size() == 1 ? "MPI calls" : fmt::format("MPI calls, thread {}", thread));
    for (const MpiCall* recorded : in_order(rank.mpi_calls)) {
      MpiCall call = *recorded;
      std::uint64_t& end = ends[call.thread];
      call.begin_ns = std::max(call.begin_ns, end);  // ranges of a row may not overlap
      end = call.end_ns = std::max(call.begin_ns, call.end_ns);
      range(rank.rank, mpi_row(call.thread), in_json(call.routine), "mpi", call.begin_ns, call.end_ns,
            about(call));
      if (call.arrived_ns != 0) add_waiting_and_transfer(rank.rank, mpi_row(call.thread), "mpi", call);
    }
  }
  static int mpi_row(std::uint32_t thread) { return first_thread_row + static_cast<int>(thread % 1000000); }
  std::string about(const MpiCall& call) const {
    std::string text;
    const auto add = [&](const char* name, const std::string& value) {
      text += fmt::format(R"({}"{}":{})", text.empty() ? "" : ",", name, value);
    };
    if (call.has_bytes) add("bytes", std::to_string(call.bytes));
    if (call.communicator != 0) add("communicator", group_named(call.communicator));
    switch (call.peers) {
      case MpiPeers::none: break;
      case MpiPeers::root: add("root", rank_in_json(call.peer)); break;
      case MpiPeers::target: add("target", rank_in_json(call.peer)); break;
      case MpiPeers::to: add("to", rank_in_json(call.peer)); break;
      case MpiPeers::from: add("from", rank_in_json(call.source)); break;
      case MpiPeers::to_and_from:
        add("to", rank_in_json(call.peer));
        add("from", rank_in_json(call.source));
        break;
    }
    if (!call.has_returned) add("returned", "false");
    return text;
  }
  static std::string rank_in_json(std::int32_t rank) {
    switch (rank) {
      case mpi_any_rank: return "\"any\"";
      case mpi_no_rank: return "\"none\"";
      case mpi_root_here: return "\"here\"";
      default: return std::to_string(rank);
    }
  }

  void add_spans(const RankTimeline& rank) {
    std::map<std::uint32_t, bool> named;
    for (const SpanEvent& span : rank.spans) {
      const std::string name = in_json(name_of(rank, span));
      if (span.thread == trace::counter_thread) {
        fmt::format_to(begin_event(), R"({{"ph":"C","pid":{},"name":{},"ts":{:.3f},"args":{{"value":{}}}}})",
                       rank.rank, name, us(span.begin_ns), nlohmann::json(span.value).dump());
        continue;
      }
      if (!trace::is_of_thread(span)) continue;
      const int row = first_thread_row + static_cast<int>(span.thread % 1000000);
      if (!std::exchange(named[span.thread], true))
        name_row(rank.rank, row, fmt::format("thread {}", span.thread));
      range(rank.rank, row, name, "program", span.begin_ns, span.end_ns);
    }
  }

  void say_left_out(const RankTimeline& rank) {
    fmt::format_to(begin_event(), R"({{"ph":"i","s":"p","pid":{},"tid":0,"ts":0,"name":{}}})", rank.rank,
                   in_json(base::counted(static_cast<std::int64_t>(rank.left_out), "event") +
                           " of this rank had no room and are not here" +
                           (rank.left_out_when.empty() ? "" : ": " + rank.left_out_when)));
  }

  const Timeline& timeline_;
  PiecewiseText out_;
  std::map<std::uint32_t, std::string> groups_;  // names, in quotes
  std::uint64_t begin_ns_ = 0;
  bool is_first_ = true;
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

void write_timeline(const Timeline& timeline, const std::function<void(std::string_view)>& write) {
  if (timeline.names == TimelineNames::horovod) return write_horovod_timeline(timeline, write);
  Writer(timeline, write).run();
}

void write_timeline_file(const std::filesystem::path& path, const Timeline& timeline) {
  FileReplacement file(path, "timeline");
  write_timeline(timeline, [&](std::string_view text) { file.write(std::as_bytes(std::span(text))); });
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
