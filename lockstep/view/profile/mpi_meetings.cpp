#include "lockstep/view/profile/mpi_meetings.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

namespace lockstep::view {
namespace {

// Of those with counts for each rank a call that moves nothing may end before others come; such a one is no meeting.
constexpr std::array<std::string_view, 8> all_for_all = {
    "MPI_Barrier",  "MPI_Allreduce", "MPI_Allgather",      "MPI_Allgatherv",
    "MPI_Alltoall", "MPI_Alltoallv", "MPI_Reduce_scatter", "MPI_Reduce_scatter_block"};
// Of a communicator's collectives so many must be possible; of fewer, some rank's list has holes, and order means nothing.
constexpr double least_possible = 0.9;

const MpiCall& call_of(const std::vector<RankTimeline>& ranks, const MpiMeeting::Member& member) {
  return ranks[member.place].mpi_calls[member.call];
}

std::uint64_t last_begin(const std::vector<RankTimeline>& ranks, const MpiMeeting& meeting) {
  std::uint64_t last = 0;
  for (const auto& member : meeting.members) last = std::max(last, call_of(ranks, member).begin_ns);
  return last;
}

/// The calls of a rank that are meetings, by communicator, in their order.
std::map<std::uint32_t, std::vector<std::size_t>> calls_by_communicator(const RankTimeline& rank) {
  std::map<std::uint32_t, std::vector<std::size_t>> calls;
  for (std::size_t i = 0; i < rank.mpi_calls.size(); ++i) {
    const MpiCall& call = rank.mpi_calls[i];
    if (call.communicator != 0 && std::ranges::count(all_for_all, call.routine) > 0)
      calls[call.communicator].push_back(i);
  }
  for (auto& [communicator, indices] : calls)
    std::ranges::stable_sort(indices, {}, [&](std::size_t i) { return rank.mpi_calls[i].begin_ns; });
  return calls;
}

/// One routine, and nobody out before the last was in.
bool is_possible(const std::vector<RankTimeline>& ranks, const MpiMeeting& meeting,
                 std::uint64_t clock_error_ns) {
  std::uint64_t first_end = std::numeric_limits<std::uint64_t>::max();
  const std::string_view routine = call_of(ranks, meeting.members.front()).routine;
  for (const auto& member : meeting.members) {
    const MpiCall& call = call_of(ranks, member);
    if (call.routine != routine || !call.has_returned) return false;
    first_end = std::min(first_end, call.end_ns);
  }
  return last_begin(ranks, meeting) <= first_end + std::min(2 * clock_error_ns, ~first_end);
}

}  // namespace

MpiMeetings mpi_meetings(const std::vector<RankTimeline>& ranks, std::uint64_t clock_error_ns) {
  std::map<std::uint32_t, std::vector<MpiMeeting>> by_communicator;
  std::map<std::uint32_t, std::size_t> members;  // ranks of a communicator
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    for (const auto& [communicator, calls] : calls_by_communicator(ranks[place])) {
      ++members[communicator];
      auto& meetings = by_communicator[communicator];
      meetings.resize(std::max(meetings.size(), calls.size()));
      for (std::size_t i = 0; i < calls.size(); ++i) meetings[i].members.push_back({place, calls[i]});
    }
  }
  MpiMeetings found;
  for (auto& [communicator, meetings] : by_communicator) {
    const std::size_t size = members[communicator];
    if (size < 2) continue;
    const std::size_t all = meetings.size();
    std::erase_if(meetings, [&](const MpiMeeting& meeting) {
      return meeting.members.size() != size || !is_possible(ranks, meeting, clock_error_ns);
    });
    if (static_cast<double>(meetings.size()) < least_possible * static_cast<double>(all)) {
      found.are_lost = true;
      continue;
    }
    std::ranges::move(meetings, std::back_inserter(found.all));
  }
  return found;
}

void note_arrivals(std::vector<RankTimeline>& ranks, std::uint64_t clock_error_ns) {
  for (const MpiMeeting& meeting : mpi_meetings(ranks, clock_error_ns).all) {
    const std::uint64_t last = last_begin(ranks, meeting);
    for (const auto& member : meeting.members) {
      MpiCall& call = ranks[member.place].mpi_calls[member.call];
      if (call.has_arrived) continue;
      call.arrived_ns = std::clamp(last, call.begin_ns, std::max(call.begin_ns, call.end_ns));
      call.has_arrived = true;
    }
  }
}

}  // namespace lockstep::view
