#include "lockstep/launch/flight_recorder.h"

#include <fmt/chrono.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <map>

#include "lockstep/base/file.h"
#include "lockstep/base/words.h"
#include "lockstep/launch/process_status.h"
#include "lockstep/trace/recorder.h"

namespace lockstep::launch {
namespace {

using trace::CollectiveEvent;
using trace::FlightLimits;
using trace::OpenCall;

// A program can write to the page by mistake, and what makes no sense cannot be told.
bool makes_sense(Operation operation, Dtype dtype, ReduceOp reduce_op) {
  return operation <= Operation::all_to_all && size_of(dtype) != 0 && reduce_op <= ReduceOp::custom;
}

bool makes_sense(const OpenCall& call) {
  const auto is_rank = [](int rank) { return rank >= 0 && rank < FlightLimits::ranks; };
  const auto awaited = call.awaited_ranks();
  return makes_sense(call.signature.operation, call.signature.dtype, call.signature.reduce_op) &&
         call.peer >= -1 && call.peer < FlightLimits::ranks && call.awaited_count <= FlightLimits::ranks &&
         std::all_of(awaited.begin(), awaited.end(), is_rank);
}

std::vector<CollectiveEvent> last_events(trace::RecordRings& rings, std::size_t most) {
  const trace::Recorder recorder(&rings);
  const std::uint64_t end = recorder.collectives();
  auto calls = recorder.collectives_since(end - std::min<std::uint64_t>(end, most));
  std::erase_if(calls, [](const CollectiveEvent& call) {
    return !makes_sense(call.operation, call.dtype, call.reduce_op);
  });
  return calls;
}

trace::FlightRank read_rank(const ControlPage& page, int local_rank) {
  const RankStatus& status = page.status(local_rank);
  trace::FlightRank rank{.rank = local_rank, .pid = std::max(status.pid.load(), 0)};
  rank.joined = rank.pid != 0;
  rank.left = status.said_goodbye.load() != 0;
  rank.open_calls = trace::read_open_calls(page.open_calls(local_rank));
  std::erase_if(rank.open_calls, [](const OpenCall& call) { return !makes_sense(call); });
  rank.open_calls_left_out = page.open_calls(local_rank).left_out.load();
  const std::size_t share = FlightLimits::events / static_cast<std::size_t>(page.local_ranks());
  rank.events = last_events(page.record(local_rank), std::min(share, trace::ring_capacity));
  return rank;
}

// Ranks that were started by hand, some here and some elsewhere, say in the world's entry who they are.
void name_world_ranks(const std::vector<std::vector<trace::GroupEntry>>& entries,
                      std::vector<trace::FlightRank>& ranks) {
  std::vector<int> found;
  for (const auto& of_rank : entries) {
    const auto world =
        std::find_if(of_rank.begin(), of_rank.end(), [](const auto& group) { return group.name == "world"; });
    if (world == of_rank.end() || world->rank >= FlightLimits::ranks) return;
    if (!found.empty() && world->rank <= found.back()) return;
    found.push_back(world->rank);
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].rank = found[i];
}

std::vector<trace::FlightGroup> join_groups(const std::vector<std::vector<trace::GroupEntry>>& entries,
                                            const std::vector<trace::FlightRank>& ranks) {
  std::map<std::uint32_t, trace::FlightGroup> groups;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    for (const trace::GroupEntry& entry : entries[i]) {
      if (entry.rank < 0 || entry.rank >= entry.ranks || entry.ranks > FlightLimits::ranks) continue;
      if (!groups.contains(entry.number) && groups.size() == FlightLimits::groups) continue;
      trace::FlightGroup& group = groups[entry.number];
      group.number = entry.number;
      group.name = entry.name;
      group.members.resize(static_cast<std::size_t>(entry.ranks), -1);
      group.members[static_cast<std::size_t>(entry.rank)] = ranks[i].rank;
    }
  }
  std::vector<trace::FlightGroup> all;
  for (auto& [number, group] : groups) all.push_back(std::move(group));
  return all;
}

trace::FlightEnding to_flight(const Ending& ending) {
  const bool by_signal = WIFSIGNALED(ending.wait_status);
  return {.exit_code = by_signal ? 0 : WEXITSTATUS(ending.wait_status),
          .signal = by_signal ? WTERMSIG(ending.wait_status) : 0,
          .order = ending.moment,
          .by_launcher = ending.by_launcher};
}

void write_file(const std::filesystem::path& folder, const std::string& text) {
  std::filesystem::create_directories(folder);
  FileReplacement file(folder / trace::flight_record_file, "flight record");
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace

trace::FlightRecord read_record(const ControlPage& page) {
  trace::FlightRecord record{.host = base::host_name()};
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  record.written_at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
  std::vector<std::vector<trace::GroupEntry>> entries;
  for (int local_rank = 0; local_rank < page.local_ranks(); ++local_rank) {
    record.ranks.push_back(read_rank(page, local_rank));
    entries.push_back(trace::read_group_names(page.groups(local_rank)));
  }
  name_world_ranks(entries, record.ranks);
  record.groups = join_groups(entries, record.ranks);
  if (const auto cause = page.first_cause().get()) {
    const auto known = [](int rank) { return rank >= 0 && rank < FlightLimits::ranks ? rank : -1; };
    record.first_cause = {.code = cause->code <= ErrorCode::system ? cause->code : ErrorCode::aborted,
                          .culprit = known(cause->culprit),
                          .reporter = known(cause->reporter),
                          .text = cause->text};
  }
  return record;
}

trace::ProcessState state_of(pid_t pid) {
  switch (read_status(pid).state) {
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

void FlightRecorder::note_failure(const ControlPage& page, std::span<const pid_t> started) {
  if (folder_.empty()) return;
  failed_at_ns_ = trace::now_ns();
  for (std::size_t rank = 0; rank < started.size(); ++rank) {
    const pid_t joined = page.status(static_cast<int>(rank)).pid.load();
    states_.push_back(state_of(joined > 0 ? joined : started[rank]));
  }
}

std::string FlightRecorder::write(const ControlPage& page, std::span<const pid_t> started,
                                  std::span<const Ending> endings) const {
  if (folder_.empty()) return {};
  const auto folder = std::filesystem::path(folder_) / job_;
  try {
    trace::FlightRecord record = read_record(page);
    const auto has_joined = [](const trace::FlightRank& rank) { return rank.joined; };
    if (std::none_of(record.ranks.begin(), record.ranks.end(), has_joined)) return {};
    record.job = job_;
    record.at_ns = failed_at_ns_ != 0 ? failed_at_ns_ : trace::now_ns();
    for (std::size_t i = 0; i < record.ranks.size(); ++i) {
      trace::FlightRank& rank = record.ranks[i];
      if (!rank.joined) rank.pid = started[i];
      rank.state = states_.empty() ? trace::ProcessState::gone : states_[i];
    }
    for (const Ending& ending : endings)
      record.ranks[static_cast<std::size_t>(ending.rank)].ending = to_flight(ending);
    write_file(folder, record.to_text());
    return "lockstep run: `lockstep explain " + folder.string() + "` says which rank was where\n";
  } catch (const std::exception& error) {
    return "lockstep run: there is no flight record of this job: " + std::string(error.what()) + "\n";
  }
}

}  // namespace lockstep::launch
