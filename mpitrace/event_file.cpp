#include "mpitrace/event_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/words.h"
#include "lockstep/view/profile/time_slices.h"
#include "mpitrace/routines.h"

namespace lockstep::mpitrace {
namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
constexpr std::uint64_t longest_ns = std::uint64_t{365} * 24 * 3600 * second_ns;
constexpr std::uint64_t latest_ns = std::uint64_t{1} << 62U;  // by any clock
constexpr std::uint64_t most_left_out = std::uint64_t{1} << 53U;

template <std::size_t size>
std::string text_of(const char (&field)[size]) {
  return {field, ::strnlen(field, size)};
}

template <class T>
T at(std::span<const std::byte> file, std::size_t offset) {
  T value;
  std::memcpy(&value, file.data() + offset, sizeof(value));
  return value;
}

EventsHeader header_of(std::span<const std::byte> file, const std::string& what) {
  EventsHeader header{};
  if (file.size() >= event_names_at) header = at<EventsHeader>(file, 0);
  const bool is_whole = header.magic == events_magic && header.version == events_version &&
                        header.routines == routine_count && header.begin_ns != 0 &&
                        header.begin_ns < latest_ns && header.rank >= 0 && header.rank < header.ranks &&
                        header.last_events > 0 && header.last_events <= last_events &&
                        header.kept_events <= kept_events && header.most_names <= most_event_names;
  if (!is_whole)
    throw Error(ErrorCode::corrupt_data,
                what + " has no calls as this version's mpitrace libraries write them");
  return header;
}

std::int64_t ahead_by(const ClockExchange& exchange) {
  return static_cast<std::int64_t>(exchange.told_ns) - static_cast<std::int64_t>(exchange.asked_ns);
}

/// Clocks drift apart by some parts of a million. `before`: those that are believed.
bool makes_sense(const ClockExchange& exchange, const EventsHeader& header,
                 const std::vector<ClockExchange>& before) {
  const bool is_in_order = exchange.asked_ns <= exchange.heard_ns && exchange.heard_ns < latest_ns;
  const std::uint64_t from_begin =
      std::max(exchange.told_ns, header.begin_ns) - std::min(exchange.told_ns, header.begin_ns);
  if (!is_in_order || from_begin > longest_ns) return false;
  const auto most_apart = static_cast<std::int64_t>(60 * second_ns);
  return before.empty() || std::abs(ahead_by(exchange) - ahead_by(before.front())) < most_apart;
}

class Reader {
 public:
  Reader(std::span<const std::byte> file, const std::string& what)
      : file_(file), header_(header_of(file, what)) {}

  RankEvents read() {
    view::RankTimeline& timeline = events_.timeline;
    timeline.rank = header_.rank;
    timeline.pid = header_.pid;
    timeline.host = text_of(header_.host);
    read_names();
    const std::size_t begin = event_threads_at(header_.most_names);
    const std::size_t part = event_thread_bytes(header_.last_events, header_.kept_events);
    const std::size_t claimed = std::min(header_.threads, most_event_threads);
    const std::size_t there = file_.size() < begin ? 0 : std::min(claimed, (file_.size() - begin) / part);
    for (std::size_t thread = 0; thread < there; ++thread)
      read_thread(static_cast<std::uint32_t>(thread), begin + thread * part);
    if (there < header_.threads)
      note(fmt::format("calls of {} of its {} are cut off", header_.threads - there,
                       base::counted(header_.threads, "thread")));
    if (header_.threads_without_room > 0)
      note(
          fmt::format("calls of {} more had no room", base::counted(header_.threads_without_room, "thread")));
    if (nonsense_ > 0)
      note(fmt::format("{} no sense and are not here",
                       nonsense_ == 1 ? "1 event makes" : fmt::format("{} events make", nonsense_)));
    return std::move(events_);
  }

 private:
  void note(const std::string& text) {
    events_.notes.push_back(fmt::format("rank {}: {}", header_.rank, text));
  }

  void read_names() {
    for (std::uint32_t place = 0; place < std::min(header_.names, header_.most_names); ++place) {
      const std::size_t offset = event_names_at + place * sizeof(EventName);
      if (file_.size() < offset + sizeof(EventName)) break;
      const auto name = at<EventName>(file_, offset);
      events_.names.emplace_back(name.data(), ::strnlen(name.data(), name.size()));
    }
  }

  void read_thread(std::uint32_t thread, std::size_t offset) {
    const auto counts = at<EventCounts>(file_, offset);
    const std::size_t ring = offset + sizeof(EventCounts);
    const std::size_t kept = ring + header_.last_events * sizeof(Event);
    found_.clear();
    for (std::size_t i = 0; i < std::min<std::uint64_t>(counts.kept, header_.kept_events); ++i)
      take(at<Event>(file_, kept + i * sizeof(Event)));
    const std::uint64_t in_ring = std::min<std::uint64_t>(counts.written, header_.last_events);
    std::uint64_t first_in_ring = 0;
    for (std::uint64_t i = 0; i < in_ring; ++i) {
      const std::uint64_t number = counts.written - in_ring + i;
      const auto event = at<Event>(file_, ring + number % header_.last_events * sizeof(Event));
      // In place of the oldest stands the call in which the thread was, if it was in one.
      const bool is_next = i == 0 && in_ring == header_.last_events;
      if (is_next && event.end_ns == 0) continue;
      if (first_in_ring == 0) first_in_ring = event.begin_ns;
      take(event);
    }
    const auto last = at<Event>(file_, ring + counts.written % header_.last_events * sizeof(Event));
    if (in_ring < header_.last_events) take(last);  // it was over, and not yet counted
    add(thread, last);
    events_.timeline.left_out += std::min(counts.left_out, most_left_out);
    if (counts.left_out > 0) say_when(thread, counts, first_in_ring);
  }

  void take(const Event& event) {
    const bool makes_sense = event.begin_ns >= header_.begin_ns &&
                             event.begin_ns - header_.begin_ns < longest_ns &&
                             event.end_ns >= event.begin_ns && event.end_ns - event.begin_ns < longest_ns &&
                             event.routine < routine_count;
    if (makes_sense) found_.push_back(event);
    if (!makes_sense && event.end_ns != 0) ++nonsense_;  // else it was being moved
  }

  /// What was moved when the rank ended is there twice.
  void add(std::uint32_t thread, const Event& last) {
    const auto order = [](const Event& event) {
      return std::tuple(event.begin_ns, event.end_ns, event.routine, event.bytes, event.peer, event.source);
    };
    std::ranges::stable_sort(found_, {}, order);
    const auto is_same = [&](const Event& one, const Event& other) { return order(one) == order(other); };
    found_.erase(std::unique(found_.begin(), found_.end(), is_same), found_.end());
    for (const Event& event : found_) events_.timeline.mpi_calls.push_back(call_of(event, thread));
    const bool is_open = last.end_ns == 0 && last.begin_ns >= header_.begin_ns &&
                         last.begin_ns - header_.begin_ns < longest_ns && last.routine < routine_count &&
                         (found_.empty() || last.begin_ns >= found_.back().end_ns);
    if (!is_open) return;
    events_.timeline.mpi_calls.push_back(call_of(last, thread));
    events_.timeline.mpi_calls.back().end_ns = last.begin_ns;
    events_.timeline.mpi_calls.back().has_returned = false;
  }

  view::MpiCall call_of(const Event& event, std::uint32_t thread) const {
    const Routine& routine = routines[event.routine];
    const bool is_named = event.communicator <= events_.names.size();
    return {.begin_ns = event.begin_ns,
            .arrived_ns = event.arrived_ns,
            .end_ns = event.end_ns,
            .bytes = event.bytes,
            .routine = routine.name,
            .communicator = is_named ? event.communicator : std::uint32_t{0},
            .thread = thread,
            .peer = event.peer,
            .source = event.source,
            .peers = routine.peers,
            .has_arrived = event.arrived_ns != 0,
            .has_bytes = routine.has_sizes};
  }

  /// What is left of the time before the calls that are all there.
  void say_when(std::uint32_t thread, const EventCounts& counts, std::uint64_t all_from_ns) {
    std::string& text = events_.timeline.left_out_when;
    if (!text.empty()) text += "; ";
    const std::uint64_t first = found_.empty() ? all_from_ns : found_.front().begin_ns;
    const std::string slice = base::duration(view::slice_ns);
    text += fmt::format(
        "thread {} has all from {} after its first call on, before that of {} its first {}", thread,
        base::duration(std::max(all_from_ns, first) - first),
        counts.kept_of == 1 ? "each " + slice : fmt::format("one {} in {}", slice, counts.kept_of),
        base::counted(most_in_slice, "call"));
  }

  std::span<const std::byte> file_;
  EventsHeader header_;
  RankEvents events_;
  std::vector<Event> found_;  // of one thread
  std::uint64_t nonsense_ = 0;
};

}  // namespace

RankAbout read_about(std::span<const std::byte> file, const std::string& what) {
  const EventsHeader header = header_of(file, what);
  RankAbout about{.rank = header.rank,
                  .ranks = header.ranks,
                  .pid = header.pid,
                  .host = text_of(header.host),
                  .job = text_of(header.job),
                  .run = text_of(header.run),
                  .timeline = text_of(header.timeline),
                  .start = header.start,
                  .clock = header.clock};
  const std::size_t exchanges = std::min<std::size_t>(header.exchanges, EventsHeader::most_exchanges);
  for (const ClockExchange& exchange : std::span(header.exchanged, exchanges)) {
    if (makes_sense(exchange, header, about.exchanged)) about.exchanged.push_back(exchange);
  }
  return about;
}

RankEvents read_events(std::span<const std::byte> file, const std::string& what) {
  return Reader(file, what).read();
}

}  // namespace lockstep::mpitrace
