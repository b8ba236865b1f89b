// A rank's rings forget after some thousand events, a timeline wants all of them: while the job runs they are read again and
// again, and kept here. What comes faster than that is lost and counted, and of more than there is room for every second slice
// of time goes (view/profile/time_slices.h), so that a run of any length is there from its beginning to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/memory/control_page.h"
#include "lockstep/view/profile/timeline.h"

namespace lockstep::view {

class TimelineSpool {
 public:
  static constexpr std::size_t most_events = std::size_t{1} << 20;  ///< of all ranks of a page together

  /// Of the whole run. Borrows the page. `ranks`: world ranks, by place in the page.
  TimelineSpool(const ControlPage& page, const std::vector<int>& ranks, std::size_t most = most_events);
  /// Of what the rank at `place` does from now on.
  static TimelineSpool from_now(const ControlPage& page, int place, int rank, std::size_t most);

  /// Reads what is new, if it is time to.
  void look();
  Deadline next_look() const { return next_; }
  /// All that there is, with what is new. Once.
  std::vector<RankTimeline> take();
  /// The same so far, as a copy; looking goes on.
  std::vector<RankTimeline> copy();

 private:
  struct Rank {
    int place = 0;
    RankTimeline timeline = {};
    std::uint64_t calls = 0, steps = 0, spans = 0;  // read so far
    std::uint64_t kept_of = 1;                      // each so many-th slice is kept
  };

  TimelineSpool(std::size_t most_of_rank, const ControlPage& page);
  void add(int place, int rank);
  void read(Rank& rank);
  RankTimeline& finish(Rank& rank);
  template <class Event>
  void keep(Rank& rank, std::vector<Event>& into, const std::vector<Event>& events);
  /// Slices of time are those of all hosts: by the time of day.
  std::uint64_t time_of_day_ns(std::uint64_t ns) const { return ns + time_of_day_offset_ns_; }

  const ControlPage* page_;
  std::size_t most_of_rank_;
  std::uint64_t time_of_day_offset_ns_;
  std::vector<Rank> ranks_;
  Deadline next_;
};

}  // namespace lockstep::view
