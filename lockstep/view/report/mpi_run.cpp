#include "lockstep/view/report/mpi_run.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <string_view>

#include "lockstep/view/profile/mpi_meetings.h"
#include "lockstep/view/report/meeting_sums.h"

namespace lockstep::view {
namespace {

double length_of(const MpiCall& call) {
  return static_cast<double>(call.end_ns - std::min(call.begin_ns, call.end_ns));
}

double waited_in(const MpiCall& call) {
  return call.has_arrived ? static_cast<double>(call.arrived_ns - std::min(call.begin_ns, call.arrived_ns))
                          : 0;
}

/// From its first call of MPI to the end of its last one.
void add_facts(const RankTimeline& rank, RankFacts& facts) {
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max(), last = 0;
  std::vector<double> transfers;
  for (const MpiCall& call : rank.mpi_calls) {
    first = std::min(first, call.begin_ns);
    last = std::max(last, call.end_ns);
    facts.communication_ns += length_of(call);
    facts.waited_ns += waited_in(call);
    if (call.has_arrived && call.bytes > 0) transfers.push_back(length_of(call) - waited_in(call));
  }
  facts.elapsed_ns = static_cast<double>(last - std::min(first, last));
  facts.transfers = transfers.size();
  facts.transfer_ns = median_of(std::move(transfers));
}

void add_rows(const RunData& run, Analysis& analysis) {
  std::map<std::string_view, MpiRow> rows;
  for (const RankTimeline& rank : run.timeline.ranks) {
    for (const MpiCall& call : rank.mpi_calls) {
      MpiRow& row = rows[call.routine];
      row.routine = call.routine;
      ++row.calls;
      row.bytes += call.bytes;
      row.ns += length_of(call);
      row.waited_ns += waited_in(call);
    }
  }
  for (auto& [routine, row] : rows) analysis.mpi.push_back(std::move(row));
  std::ranges::stable_sort(analysis.mpi, std::greater<>(), &MpiRow::ns);
}

void add_meetings(const RunData& run, Analysis& analysis) {
  const auto& ranks = run.timeline.ranks;
  const MpiMeetings meetings = mpi_meetings(ranks, run.timeline.clock_error_ns);
  std::map<std::string_view, MeetingSums> sums;
  for (const MpiMeeting& meeting : meetings.all) {
    std::vector<Arrival> arrivals;
    std::string_view routine;
    for (const auto& [place, call] : meeting.members) {
      routine = ranks[place].mpi_calls[call].routine;
      arrivals.push_back({place, ranks[place].mpi_calls[call].begin_ns});
    }
    sums.try_emplace(routine, std::string(routine)).first->second.add(std::move(arrivals));
  }
  for (auto& [routine, of] : sums) analysis.meetings.push_back(of.finish(ranks));
  if (meetings.are_lost)
    analysis.notes.emplace_back(
        "calls are missing in the timeline, or times of ranks do not fit: which calls of some communicators "
        "are one collective, "
        "and who came late to it, is not known");
}

}  // namespace

void add_mpi_calls(const RunData& run, Analysis& analysis) {
  for (const RankTimeline& rank : run.timeline.ranks) {
    const auto facts = std::ranges::find(analysis.ranks, rank.rank, &RankFacts::rank);
    if (!rank.mpi_calls.empty() && facts != analysis.ranks.end()) add_facts(rank, *facts);
  }
  add_rows(run, analysis);
  add_meetings(run, analysis);
}

}  // namespace lockstep::view
