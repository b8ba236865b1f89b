#include "mpitrace/events.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "lockstep/view/profile/time_slices.h"

namespace lockstep::mpitrace {
namespace {

constexpr std::size_t part_bytes = event_thread_bytes(last_events, kept_events);
constexpr std::size_t most_events_bytes =
    event_threads_at(most_event_names) + most_event_threads * part_bytes;

// One thread writes, and others read when it has come to its end, also by force: what matters is the order of the stores.
template <class Word>
void put(Word& word, Word value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

/// At no moment does a mixture of two look like one that is over: its end goes first and comes last.
void copy(const Event& from, Event& to) {
  put(to.end_ns, std::uint64_t{0});
  put(to.begin_ns, from.begin_ns);
  put(to.arrived_ns, from.arrived_ns);
  put(to.bytes, from.bytes);
  put(to.peer, from.peer);
  put(to.source, from.source);
  put(to.routine, from.routine);
  put(to.communicator, from.communicator);
  put(to.end_ns, from.end_ns);
}

std::uint64_t slice_of(const Event& event) {
  return (event.begin_ns - static_cast<std::uint64_t>(ThreadEvents::ahead_ns)) / view::slice_ns;
}

/// The pages are there before the calls that are to be measured.
void touch(std::byte* data, std::size_t bytes) {
  constexpr int populate_for_writing = 23;  // MADV_POPULATE_WRITE, since Linux 5.14
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  constexpr std::uintptr_t page = 4096;
  const std::uintptr_t begin = address / page * page;
  (void)::madvise(reinterpret_cast<void*>(begin), address + bytes - begin, populate_for_writing);
}

}  // namespace

Event& ThreadEvents::begin(int routine, std::uint64_t bytes, const AboutCall& about) {
  Event& event = last()[counts().written % last_events];
  if (event.end_ns != 0) keep(event);
  put(event.end_ns, std::uint64_t{0});
  put(event.begin_ns, std::uint64_t{0});
  put(event.arrived_ns, std::uint64_t{0});
  put(event.bytes, bytes);
  put(event.peer, about.peer);
  put(event.source, about.source);
  put(event.routine, static_cast<std::uint16_t>(routine));
  put(event.communicator, about.communicator);
  return event;
}

void ThreadEvents::end(Event& event, std::uint64_t now) {
  put(event.end_ns, now);
  put(counts().written, counts().written + 1);
}

// From here to the end of begin() the event is in both places; the reader knows copies.
void ThreadEvents::keep(const Event& event) {
  EventCounts& all = counts();
  const std::uint64_t slice = slice_of(event);
  if (slice != all.slice) {
    all.slice = slice;
    all.in_slice = 0;
  }
  const bool is_too_busy = all.left_out != 0 && all.in_slice >= most_in_slice;
  if ((slice & (all.kept_of - 1)) != 0 || is_too_busy || all.kept >= kept_events) {
    put(all.left_out, all.left_out + 1);
    return;
  }
  ++all.in_slice;
  copy(event, kept()[all.kept]);
  put(all.kept, all.kept + 1);
  if (all.kept == kept_events) thin_out();
}

/// Calls `use` with each that stays.
template <class Use>
void ThreadEvents::each_that_stays(std::uint64_t kept_of, Use use) const {
  std::uint64_t slice = 0, in_slice = 0;
  for (const Event& event : std::span(kept(), counts().kept)) {
    const std::uint64_t before = std::exchange(slice, slice_of(event));
    in_slice = slice == before ? in_slice + 1 : 1;
    if ((slice & (kept_of - 1)) == 0 && in_slice <= most_in_slice) use(event);
  }
}

void ThreadEvents::thin_out() {
  EventCounts& all = counts();
  constexpr std::uint64_t enough = kept_events - kept_events / 4;
  const auto count = [&](std::uint64_t kept_of) {
    std::uint64_t stay = 0;
    each_that_stays(kept_of, [&](const Event&) { ++stay; });
    return stay;
  };
  std::uint64_t kept_of = all.kept_of, stay = count(kept_of);
  while (stay > enough && kept_of < std::uint64_t{1} << 40U) stay = count(kept_of *= 2);
  put(all.kept_of, kept_of);
  put(all.left_out, all.left_out + (all.kept - stay));
  Event* next = kept();
  each_that_stays(kept_of, [&](const Event& event) {
    if (&event != next) copy(event, *next);
    ++next;
  });
  put(all.kept, stay);
}

Events* Events::create(const std::string& path, std::string& problem) {
  auto file = RankFile::create(path, most_events_bytes, problem);
  if (!file) return nullptr;
  const bool is_there = file->reserve(0, event_threads_at(most_event_names) + part_bytes);
  if (!is_there) problem = path + ": " + std::strerror(errno);
  if (file->is_memory_alone() || !is_there) {  // nobody would find it
    file->remove_file();
    file->forget();
    return nullptr;
  }
  auto* const events = new Events(std::move(*file));
  EventsHeader& header = events->header();
  header.version = events_version;
  header.last_events = last_events;
  header.kept_events = kept_events;
  header.most_names = most_event_names;
  return events;
}

std::size_t Events::size() const {
  return event_threads_at(most_event_names) + header().threads * part_bytes;
}

ThreadEvents* Events::join() {
  const std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    ThreadEvents* const thread = free_.back();
    free_.pop_back();
    return thread;
  }
  const std::size_t at = size();
  if (header().threads == most_event_threads || !file_.reserve(at, part_bytes)) {
    put(header().threads_without_room, header().threads_without_room + 1);
    return nullptr;
  }
  touch(file_.data() + at, part_bytes);
  reinterpret_cast<EventCounts*>(file_.data() + at)->kept_of = 1;
  put(header().threads, header().threads + 1);
  return threads_.emplace_back(std::make_unique<ThreadEvents>(file_.data() + at)).get();
}

void Events::leave(ThreadEvents* thread) {
  const std::lock_guard lock(mutex_);
  free_.push_back(thread);
}

std::uint16_t Events::number_of(std::string_view name) {
  EventName text = {};
  name.substr(0, text.size() - 1).copy(text.data(), text.size() - 1);
  if (name.size() >= text.size()) std::ranges::fill(text.end() - 4, text.end() - 1, '.');
  const std::lock_guard lock(mutex_);
  auto* const names = reinterpret_cast<EventName*>(file_.data() + event_names_at);
  const std::uint32_t count = header().names;
  const auto found = std::find(names, names + count, text);
  const auto place = static_cast<std::uint32_t>(found - names);
  if (place == most_event_names) return 0;
  if (place == count) {
    *found = text;
    put(header().names, count + 1);
  }
  return static_cast<std::uint16_t>(place + 1);
}

void Events::flush() const { (void)::msync(file_.data(), size(), MS_SYNC); }

}  // namespace lockstep::mpitrace
