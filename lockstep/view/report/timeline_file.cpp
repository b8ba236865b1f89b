#include "lockstep/view/report/timeline_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "lockstep/base/words.h"
#include "lockstep/view/profile/time_slices.h"

namespace lockstep::view {

using nlohmann::json;

namespace {

std::string text_of_member(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return "";
  return found->get_ref<const std::string&>().substr(0, TimelineLimits::name_bytes);
}

/// nullopt: not there, or no number from 0 to `most`.
std::optional<double> number_of_member(const json& object, const char* key, double most) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  const auto value = found->get<double>();
  return value >= 0 && value <= most ? std::optional(value) : std::nullopt;
}

std::uint64_t whole_member(const json& object, const char* key) {
  return static_cast<std::uint64_t>(number_of_member(object, key, 9e15).value_or(0));
}

std::uint64_t ns_of(double us) { return static_cast<std::uint64_t>(std::llround(us * 1e3)); }

template <class Value>
std::optional<Value> value_named(std::string_view name, int count) {
  for (int i = 0; i < count; ++i) {
    if (to_string(static_cast<Value>(i)) == name) return static_cast<Value>(i);
  }
  return std::nullopt;
}

/// The same for all that have it, for as long as the process lives. nullopt: none of MPI's, or more than there are.
std::optional<std::string_view> routine_named(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(name);
  if (found != known.end()) return *found;
  if (!name.starts_with("MPI_") || known.size() == TimelineLimits::routines) return std::nullopt;
  return *known.insert(name).first;
}

std::optional<std::int32_t> rank_of_member(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  if (found->is_string()) {
    for (const std::int32_t rank : {mpi_any_rank, mpi_no_rank, mpi_root_here}) {
      if (*found == mpi_rank_name(rank)) return rank;
    }
  }
  const auto number = number_of_member(object, key, std::numeric_limits<std::int32_t>::max());
  return number ? static_cast<std::int32_t>(*number) : mpi_no_rank;
}

void take_peers(const json& arguments, MpiCall& call) {
  const auto to = rank_of_member(arguments, "to"), from = rank_of_member(arguments, "from");
  const auto root = rank_of_member(arguments, "root"), target = rank_of_member(arguments, "target");
  call.peers = root         ? MpiPeers::root
               : target     ? MpiPeers::target
               : to && from ? MpiPeers::to_and_from
               : to         ? MpiPeers::to
               : from       ? MpiPeers::from
                            : MpiPeers::none;
  call.peer = root ? *root : target ? *target : to.value_or(mpi_no_rank);
  call.source = from.value_or(mpi_no_rank);
}

}  // namespace

struct TimelineParser::Event {
  const json& object;
  const json& arguments;
  int rank;
  std::int64_t row;
  std::string phase;  // "X": a range, "C": a counter, ...
  std::string name;
  std::uint64_t begin_ns, end_ns;
};

void TimelineParser::add(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (line_.size() + piece.size() > TimelineLimits::line_bytes) {
      skips_line_ = true;
      line_.clear();
    } else if (!skips_line_) {
      line_ += piece;
    }
    if (end == std::string_view::npos) return;
    if (skips_line_) ++unreadable_;
    if (!skips_line_) take_line(line_);
    skips_line_ = false;
    line_.clear();
    bytes.remove_prefix(end + 1);
  }
}

void TimelineParser::take_line(std::string_view line) {
  if (line.ends_with(',')) line.remove_suffix(1);
  if (line.empty()) return;
  if (line == "]}") {
    has_ended_ = true;
    return;
  }
  const bool is_head = line.ends_with("\"traceEvents\":[");
  const json parsed = json::parse(is_head ? std::string(line) + "]}" : std::string(line), nullptr, false);
  static const json nothing = json::object();
  const auto member = [&](const char* key) -> const json& {
    const auto found = parsed.find(key);
    return found != parsed.end() && found->is_object() ? *found : nothing;
  };
  if (!parsed.is_object()) {
    ++unreadable_;
    return;
  }
  if (is_head) {
    has_begun_ = true;
    job_ = text_of_member(member("otherData"), "job");
    clock_error_ns_ = ns_of(number_of_member(member("otherData"), "clock_error_us", 1e12).value_or(0));
    return;
  }
  const auto rank = number_of_member(parsed, "pid", TimelineLimits::ranks - 1);
  const double begin = number_of_member(parsed, "ts", TimelineLimits::most_us).value_or(-1);
  const double length = number_of_member(parsed, "dur", TimelineLimits::most_us).value_or(-1);
  const std::string phase = text_of_member(parsed, "ph");
  const bool has_time = begin >= 0 && (length >= 0 || phase != "X");
  if (!rank || (!has_time && phase != "M")) {
    ++unreadable_;
    return;
  }
  take_event({.object = parsed,
              .arguments = member("args"),
              .rank = static_cast<int>(*rank),
              .row = static_cast<std::int64_t>(whole_member(parsed, "tid")),
              .phase = phase,
              .name = text_of_member(parsed, "name"),
              .begin_ns = ns_of(std::max(begin, 0.0)),
              .end_ns = ns_of(std::max(begin, 0.0) + std::max(length, 0.0))});
}

void TimelineParser::take_event(const Event& event) {
  if (event.phase == "M") return take_meta(event);
  if (event.phase == "C") return take_span(event);
  if (event.phase == "i") {  // "120 events of this rank had no room and are not here"
    (void)std::from_chars(event.name.data(), event.name.data() + event.name.size(),
                          rank(event.rank).left_out);
    return;
  }
  const std::string kind = text_of_member(event.object, "cat");
  if (kind == "training") return take_training(event);
  if (kind == "program") return take_span(event);
  if (kind == "named")
    return;  // for trace viewers: what a report needs of them are the calls that they became
  const bool is_part = event.name == "waiting for others" || event.name == "transfer";
  if (kind == "mpi") return is_part ? take_part_of_mpi_call(event) : take_mpi_call(event);
  if (kind == "call") return is_part ? take_part_of_call(event) : take_call(event);
  ++unreadable_;
}

RankTimeline& TimelineParser::rank(int number) {
  RankTimeline& found = ranks_[number];
  found.rank = number;
  return found;
}

std::uint32_t TimelineParser::number_of_group(const std::string& name) {
  const auto found = groups_.find(name);
  if (found != groups_.end()) return found->second;
  if (groups_.size() == TimelineLimits::names) return 0;
  return groups_.emplace(name, static_cast<std::uint32_t>(groups_.size() + 1)).first->second;
}

void TimelineParser::take_call(const Event& event) {
  last_call_ = {};
  const auto operation = value_named<Operation>(event.name, operation_count);
  if (!operation) {
    ++unreadable_;
    return;
  }
  if (!is_in_kept_slice(event.begin_ns, kept_of_)) {
    ++left_out_;
    return;
  }
  trace::CollectiveEvent call{};
  call.dtype = value_named<Dtype>(text_of_member(event.arguments, "dtype"), 32).value_or(Dtype::u8);
  call.sequence = whole_member(event.arguments, "number");
  call.elements = whole_member(event.arguments, "bytes") / std::max<std::size_t>(size_of(call.dtype), 1);
  call.begin_ns = call.arrived_ns = event.begin_ns;
  call.end_ns = event.end_ns;
  call.group = number_of_group(text_of_member(event.arguments, "group"));
  call.operation = *operation;
  call.failed = event.arguments.value("failed", json()) == true ? 1 : 0;
  const std::string algorithm = text_of_member(event.arguments, "algorithm");
  algorithm.copy(call.algorithm, sizeof(call.algorithm));
  rank(event.rank).calls.push_back(call);
  last_call_ = {event.rank, event.row};
  keep_within_bounds();
}

void TimelineParser::take_part_of_call(const Event& event) {
  if (event.name == "transfer" || event.rank != last_call_.rank || event.row != last_call_.row) return;
  trace::CollectiveEvent& call = ranks_.at(event.rank).calls.back();
  if (event.begin_ns == call.begin_ns) call.arrived_ns = std::min(event.end_ns, call.end_ns);
}

void TimelineParser::take_mpi_call(const Event& event) {
  last_mpi_call_ = {};
  constexpr auto most_row = first_thread_row + static_cast<std::int64_t>(TimelineLimits::names);
  const auto routine = routine_named(event.name);
  if (!routine || event.row < first_thread_row || event.row > most_row) {
    ++unreadable_;
    return;
  }
  if (!is_in_kept_slice(event.begin_ns, kept_of_)) {
    ++left_out_;
    return;
  }
  MpiCall call{.begin_ns = event.begin_ns,
               .end_ns = event.end_ns,
               .bytes = whole_member(event.arguments, "bytes"),
               .routine = *routine,
               .thread = static_cast<std::uint32_t>(event.row - first_thread_row),
               .has_bytes = event.arguments.contains("bytes"),
               .has_returned = event.arguments.value("returned", json()) != false};
  if (event.arguments.contains("communicator"))
    call.communicator = number_of_group(text_of_member(event.arguments, "communicator"));
  take_peers(event.arguments, call);
  rank(event.rank).mpi_calls.push_back(call);
  last_mpi_call_ = {event.rank, event.row};
  keep_within_bounds();
}

void TimelineParser::take_part_of_mpi_call(const Event& event) {
  if (event.rank != last_mpi_call_.rank || event.row != last_mpi_call_.row) return;
  MpiCall& call = ranks_.at(event.rank).mpi_calls.back();
  if (event.begin_ns != call.begin_ns) return;  // the transfer after a wait
  call.arrived_ns = event.name == "transfer" ? call.begin_ns : std::min(event.end_ns, call.end_ns);
  call.has_arrived = true;
}

void TimelineParser::take_training(const Event& event) {
  const bool is_part = event.rank == last_step_.rank && event.row == last_step_.row;
  if (event.name == "forward, backward") {
    if (is_part) {
      trace::TrainingStepEvent& step = ranks_.at(event.rank).steps.back();
      step.last_gradient_ns = std::clamp(event.end_ns, step.begin_ns, step.end_ns);
    }
    return;
  }
  if (!event.name.starts_with("step ")) return;
  last_step_ = {};
  if (!is_in_kept_slice(event.begin_ns, kept_of_)) {
    ++left_out_;
    return;
  }
  const auto of = [&](const char* key) { return whole_member(event.arguments, key); };
  const auto us = [&](const char* key) {
    return ns_of(number_of_member(event.arguments, key, TimelineLimits::most_us).value_or(0));
  };
  trace::TrainingStepEvent step{};
  (void)std::from_chars(event.name.data() + 5, event.name.data() + event.name.size(), step.step);
  step.begin_ns = step.last_gradient_ns = event.begin_ns;
  step.end_ns = event.end_ns;
  step.exposed_work_ns = us("exposed_work_us");
  step.exposed_wait_ns = us("exposed_wait_us");
  step.buckets = static_cast<std::uint32_t>(std::min<std::uint64_t>(of("buckets"), 1U << 20U));
  step.buckets_complete_at_last_gradient = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(of("buckets_complete_at_last_gradient"), step.buckets));
  step.gradient_bytes = of("gradient_bytes");
  rank(event.rank).steps.push_back(step);
  last_step_ = {event.rank, event.row};
  keep_within_bounds();
}

void TimelineParser::take_span(const Event& event) {
  if (!is_in_kept_slice(event.begin_ns, kept_of_)) {
    ++left_out_;
    return;
  }
  RankTimeline& of = rank(event.rank);
  auto& numbers = span_numbers_[event.rank];
  if (of.span_names.empty()) of.span_names.emplace_back("?");
  auto found = numbers.find(event.name);
  if (found == numbers.end() && numbers.size() < TimelineLimits::names) {
    found = numbers.emplace(event.name, static_cast<std::uint32_t>(of.span_names.size())).first;
    of.span_names.push_back(event.name);
  }
  const bool is_counter = event.phase == "C";
  const auto value = event.arguments.value("value", json());
  of.spans.push_back({.begin_ns = event.begin_ns,
                      .end_ns = std::max(event.begin_ns, event.end_ns),
                      .value = value.is_number() ? value.get<double>() : 0.0,
                      .name = found == numbers.end() ? 0 : found->second,
                      .thread = is_counter ? trace::counter_thread
                                           : static_cast<std::uint32_t>(std::clamp<std::int64_t>(
                                                 event.row - first_thread_row, 0, TimelineLimits::names))});
  keep_within_bounds();
}

void TimelineParser::take_meta(const Event& event) {
  if (event.name != "process_name") return;
  RankTimeline& of = rank(event.rank);
  const std::string name = text_of_member(event.arguments, "name");  // "rank 0 (host, pid 4242)"
  const std::size_t open = name.find(" ("), comma = name.rfind(", pid ");
  if (open == std::string::npos || comma == std::string::npos || comma < open + 2) return;
  of.host = name.substr(open + 2, comma - open - 2);
  (void)std::from_chars(name.data() + comma + 6, name.data() + name.size(), of.pid);
}

void TimelineParser::keep_within_bounds() {
  if (++events_ <= most_events_) return;
  last_call_ = last_step_ = last_mpi_call_ = {};
  std::vector<RankTimeline*> ranks;
  for (auto& [number, rank] : ranks_) ranks.push_back(&rank);
  const std::size_t gone = thin_out(ranks, kept_of_, [](const auto& event) { return event.begin_ns; });
  left_out_ += gone;
  events_ -= gone;
}

TimelineParser::Result TimelineParser::finish() {
  if (!skips_line_) {  // a last line without its end may be whole
    const std::uint64_t before = unreadable_;
    take_line(line_);
    unreadable_ = before;
  }
  Result result;
  result.timeline.job = job_;
  result.timeline.clock_error_ns = clock_error_ns_;
  for (auto& [number, rank] : ranks_) result.timeline.ranks.push_back(std::move(rank));
  for (const auto& [name, number] : groups_) result.timeline.groups.emplace_back(number, name);
  result.is_ours = has_begun_ || events_ > 0;
  if (!has_ended_)
    result.notes.emplace_back(
        "the timeline was cut off: what stands before its last whole line is here, and what came after it is "
        "not");
  if (unreadable_ > 0)
    result.notes.push_back(fmt::format("{} of the timeline could not be read and {} left out",
                                       base::counted(static_cast<std::int64_t>(unreadable_), "line"),
                                       unreadable_ == 1 ? "is" : "are"));
  if (left_out_ > 0)
    result.notes.push_back(fmt::format(
        "the timeline has more events than the report has room for: of each {} of it the first {} is "
        "here, and {} of other times are not",
        base::duration(kept_of_ * slice_ns), base::duration(slice_ns),
        base::counted(static_cast<std::int64_t>(left_out_), "event")));
  return result;
}

}  // namespace lockstep::view
