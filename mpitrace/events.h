// Each call of a rank's, for a timeline: in a file that is mapped while it grows, of bounded size. Each thread has its last
// calls in a ring, and what falls out of that goes, as far as there is room, to what is kept of the run from its beginning on:
// whole slices of time, every second one when the room is full, then every fourth and so on (time_slices.h).
//
//   EventsHeader | names of communicators | part of thread 0 | part of thread 1 | ...
//                                           EventCounts | last calls, a ring | kept calls, in order
//
// A call is written when it begins, so that a rank that is killed is seen in it. Whatever a reader finds, it may have been
// killed between any two stores: events.cpp says what order they are in.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/view/profile/mpi_call.h"
#include "mpitrace/rank_file.h"

namespace lockstep::mpitrace {

struct Event {
  std::uint64_t begin_ns;    ///< by trace::now_ns(); 0: not yet
  std::uint64_t arrived_ns;  ///< when a timed barrier before it was over; 0: there was none
  std::uint64_t end_ns;      ///< 0: it is not over
  std::uint64_t bytes;
  std::int32_t peer, source;   ///< as in view::MpiCall
  std::uint16_t routine;       ///< its place in `routines`
  std::uint16_t communicator;  ///< its name's place, from 1; 0: none
  std::uint32_t unused;
};

struct EventCounts {
  std::uint64_t written;   ///< calls that are over; the next one stands at `written` modulo the ring's size
  std::uint64_t kept;      ///< of those that fell out of the ring
  std::uint64_t kept_of;   ///< of so many slices one is kept
  std::uint64_t left_out;  ///< calls that are nowhere any more
  // What the writer needs alone:
  std::uint64_t slice, in_slice;  ///< of the last call that fell out, and how many of that slice are kept
  std::uint64_t unused[2];
};

/// Another host's clock, held against rank 0's.
struct ClockExchange {
  std::uint64_t asked_ns, told_ns, heard_ns;  ///< by rank 0's clock, this one's, rank 0's
};

struct EventsHeader {
  static constexpr std::size_t most_exchanges = 16;

  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t routines;  ///< of the library that writes
  std::int32_t rank, ranks;
  std::int32_t pid;
  std::uint32_t last_events, kept_events, most_names;  ///< for how many there is room
  std::uint32_t threads;                               ///< whose parts are in the file
  std::uint32_t threads_without_room;
  std::uint32_t names;  ///< that are in use
  std::uint32_t exchanges;
  std::uint64_t start;     ///< the same on all ranks of one start of a job
  std::uint64_t begin_ns;  ///< no call begins before
  std::uint64_t clock;     ///< the same on ranks that have one clock
  char host[64];
  char job[64];
  char run[64];
  char timeline[1024];  ///< the file that is wanted
  ClockExchange exchanged[most_exchanges];
};

using EventName = std::array<char, 64>;

inline constexpr std::uint64_t events_magic = 0x3145'4d49'5449'504d;  // "MPITIME1"
inline constexpr std::uint32_t events_version = 1;
inline constexpr std::uint32_t last_events = 8192, kept_events = 57344, most_event_names = 256;
inline constexpr std::uint32_t most_event_threads = 32;
/// Where there is no room for all, a slice has no more than this, so that there are always several.
inline constexpr std::uint32_t most_in_slice = kept_events / 8;
inline constexpr std::size_t event_names_at = 4096;
static_assert(sizeof(Event) == 48 && sizeof(EventCounts) == 64 && sizeof(EventsHeader) <= event_names_at);

constexpr std::size_t event_threads_at(std::size_t names) {
  return event_names_at + names * sizeof(EventName);
}
constexpr std::size_t event_thread_bytes(std::size_t last, std::size_t kept) {
  return sizeof(EventCounts) + (last + kept) * sizeof(Event);
}

/// What is known of a call before it begins.
struct AboutCall {
  std::uint16_t communicator = 0;
  std::int32_t peer = view::mpi_no_rank, source = view::mpi_no_rank;
};

/// A thread's part, as its thread writes it.
class ThreadEvents {
 public:
  explicit ThreadEvents(std::byte* part) : part_(part) {}

  /// The beginning and the end of it are the caller's to store, and then that it is over.
  Event& begin(int routine, std::uint64_t bytes, const AboutCall& about);
  void end(Event& event, std::uint64_t now);

  /// By how much this host's clock is ahead of rank 0's, which slices go by.
  static inline std::int64_t ahead_ns = 0;

 private:
  EventCounts& counts() const { return *reinterpret_cast<EventCounts*>(part_); }
  Event* last() const { return reinterpret_cast<Event*>(part_ + sizeof(EventCounts)); }
  Event* kept() const { return last() + last_events; }
  void keep(const Event& event);
  template <class Use>
  void each_that_stays(std::uint64_t kept_of, Use use) const;
  void thin_out();

  std::byte* part_;
};

/// The writer's side. Never freed: a thread may be in a call.
class Events {
 public:
  /// Null where there is no room for the file, and `problem` says why.
  static Events* create(const std::string& path, std::string& problem);

  EventsHeader& header() const { return *reinterpret_cast<EventsHeader*>(file_.data()); }
  const std::string& path() const { return file_.path(); }

  /// Room for a thread's calls: new, or that of a thread that has left(). Null: none is left, which is counted.
  ThreadEvents* join();
  void leave(ThreadEvents* thread);
  /// Its number, the same each time; 0: there are too many.
  std::uint16_t number_of(std::string_view name);

  /// For readers on other hosts.
  void flush() const;
  void remove_file() { file_.remove_file(); }
  void forget() { file_.forget(); }

 private:
  explicit Events(RankFile file) : file_(std::move(file)) {}
  std::size_t size() const;

  RankFile file_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ThreadEvents>> threads_;  // with parts in the file
  std::vector<ThreadEvents*> free_;                     // of them
};

}  // namespace lockstep::mpitrace
