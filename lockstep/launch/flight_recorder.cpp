#include "lockstep/launch/flight_recorder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>

#include "lockstep/base/file.h"
#include "lockstep/base/process_status.h"

namespace lockstep::launch {
namespace {

trace::FlightEnding to_flight(const Ending& ending) {
  const bool by_signal = WIFSIGNALED(ending.wait_status);
  return {.exit_code = by_signal ? 0 : WEXITSTATUS(ending.wait_status),
          .signal = by_signal ? WTERMSIG(ending.wait_status) : 0,
          .order = ending.moment,
          .by_launcher = ending.by_launcher};
}

void write_file(const std::filesystem::path& folder, const std::string& text) {
  make_folders(folder, "flight record");
  lockstep::write_file(folder / trace::flight_record_file, "flight record", text);
}

}  // namespace

trace::ProcessState state_of(pid_t pid) {
  switch (base::read_status(pid).state) {
    case 'R': return trace::ProcessState::running;
    case 'S':
    case 'I': return trace::ProcessState::sleeping;
    case 'D': return trace::ProcessState::blocked;
    case 'T':
    case 't': return trace::ProcessState::stopped;
    case 'Z':
    case 'X':
    case '?': return trace::ProcessState::gone;
    default: return trace::ProcessState::unknown;
  }
}

trace::FlightRecord join_records(std::vector<trace::FlightRecord> hosts) {
  trace::FlightRecord joined = std::move(hosts.front());
  std::map<std::uint32_t, trace::FlightGroup> groups;
  for (trace::FlightGroup& group : joined.groups) groups.emplace(group.number, std::move(group));
  for (trace::FlightRecord& record : std::span(hosts).subspan(1)) {
    joined.host += ", " + record.host;
    joined.at_ns = std::min(joined.at_ns, record.at_ns);
    if (!joined.first_cause) joined.first_cause = record.first_cause;
    std::ranges::move(record.ranks, std::back_inserter(joined.ranks));
    for (trace::FlightGroup& group : record.groups) {
      std::vector<int>& members = groups.emplace(group.number, group).first->second.members;
      for (std::size_t i = 0; i < std::min(members.size(), group.members.size()); ++i)
        members[i] = std::max(members[i], group.members[i]);
    }
  }
  std::ranges::sort(joined.ranks, {}, &trace::FlightRank::rank);
  joined.groups.clear();
  for (auto& [number, group] : groups) joined.groups.push_back(std::move(group));
  return joined;
}

void note_endings(trace::FlightRecord& record, std::span<const Ending> endings) {
  for (const Ending& ending : endings) {
    const auto rank = std::ranges::find(record.ranks, ending.rank, &trace::FlightRank::rank);
    if (rank == record.ranks.end()) continue;
    rank->ending = to_flight(ending);
    trace::FlightCosts& costs = rank->costs;
    if (costs.left_at_ns == 0 && costs.joined_at_ns != 0) costs.left_at_ns = ending.ended_at_ns;
    if (ending.lost.empty()) costs.process = ending.costs;
  }
}

std::string leave_record(const std::string& folder, const trace::FlightRecord& record) {
  if (std::ranges::none_of(record.ranks, &trace::FlightRank::joined)) return {};
  const auto of_job = std::filesystem::path(folder) / record.job;
  try {
    write_file(of_job, record.to_text());
    return "lockstep run: `lockstep explain " + of_job.string() + "` says which rank was where\n";
  } catch (const std::exception& error) {
    return "lockstep run: there is no flight record of this job: " + std::string(error.what()) + "\n";
  }
}

}  // namespace lockstep::launch
