// Where there is no room for all events whole slices of time are kept, every second one, then every fourth and so on: steps in
// them are whole, and a collective is there on all ranks or on none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/view/profile/timeline.h"

namespace lockstep::view {

inline constexpr std::uint64_t slice_ns = 250'000'000;

inline bool is_in_kept_slice(std::uint64_t begin_ns, std::uint64_t kept_of) {
  return begin_ns / slice_ns % kept_of == 0;
}

/// Calls `use` with each of a rank's lists of events.
template <class Use>
void with_each_list(RankTimeline& rank, Use use) {
  use(rank.calls);
  use(rank.steps);
  use(rank.spans);
  use(rank.mpi_calls);
}

/// Leaves every second of the slices that are left, and doubles `kept_of`; where events are of one slice, every second event.
/// `begin_ns(event)`: where it is in slices. Returns how many events went.
template <class Ranks, class BeginOf>
std::size_t thin_out(Ranks&& ranks, std::uint64_t& kept_of, BeginOf begin_ns) {
  std::size_t kept = 0, all = 0;
  const auto is_kept = [&](const auto& event) { return is_in_kept_slice(begin_ns(event), 2 * kept_of); };
  for (RankTimeline* rank : ranks) {
    with_each_list(*rank, [&](const auto& events) {
      all += events.size();
      for (const auto& event : events) kept += is_kept(event) ? 1 : 0;
    });
  }
  if (kept > 0 && kept < all) {
    for (RankTimeline* rank : ranks) {
      with_each_list(*rank, [&](auto& events) {
        std::erase_if(events, [&](const auto& event) { return !is_kept(event); });
      });
    }
    kept_of *= 2;
    return all - kept;
  }
  std::size_t gone = 0;
  for (RankTimeline* rank : ranks) {
    with_each_list(*rank, [&](auto& events) {
      std::size_t next = 0;
      for (std::size_t i = 0; i < events.size(); i += 2) events[next++] = events[i];
      gone += events.size() - next;
      events.resize(next);
    });
  }
  return gone;
}

}  // namespace lockstep::view
