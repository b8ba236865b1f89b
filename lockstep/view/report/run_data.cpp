#include "lockstep/view/report/run_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/view/profile/run_profile.h"
#include "lockstep/view/report/timeline_file.h"

namespace lockstep::view {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t bytes_at_once = std::size_t{1} << 20;

/// The records in a folder, the youngest first.
std::vector<fs::path> records_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    const std::string name = entry->path().filename();
    if (name.starts_with(profile_prefix) && name.ends_with(".json")) found.push_back(entry->path());
  }
  std::ranges::sort(found, [](const fs::path& one, const fs::path& other) {
    std::error_code gone;
    return fs::last_write_time(one, gone) > fs::last_write_time(other, gone);
  });
  return found;
}

trace::FlightRecord read_record_file(const fs::path& path) {
  const InputFile file(path, "record");
  if (file.size() > trace::FlightLimits::bytes)
    throw Error(ErrorCode::corrupt_data, fmt::format("{}: has more than {} bytes, and is no record",
                                                     path.string(), trace::FlightLimits::bytes));
  return trace::FlightRecord::parse(file.text(), path.string());
}

TimelineParser::Result read_timeline_file(const fs::path& path) {
  const InputFile file(path, "timeline");
  TimelineParser parser;
  std::string piece;
  for (std::uint64_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(bytes_at_once, file.size() - at)));
    file.read(at, std::as_writable_bytes(std::span(piece)));
    parser.add(piece);
  }
  return parser.finish();
}

void take_timeline(RunData& data, const fs::path& path) {
  TimelineParser::Result read = read_timeline_file(path);
  if (!read.is_ours) {
    data.notes.push_back(path.string() + " has no events as Lockstep writes them, one a line");
    return;
  }
  data.timeline = std::move(read.timeline);
  std::ranges::move(read.notes, std::back_inserter(data.notes));
}

void take_record(RunData& data, const fs::path& path) {
  try {
    data.record = read_record_file(path);
  } catch (const Error& error) {
    data.notes.push_back(fmt::format("the record could not be read: {}", error.what()));
  }
}

}  // namespace

RunData read_run(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw_invalid_argument(folder.string() +
                           " is no folder: pass one that `lockstep run --report DIR` or `lockstep profile "
                           "--report DIR` has filled");
  RunData data{.name = folder.string()};
  const fs::path timeline = folder / report_timeline_file;
  const auto records = records_in(folder);
  const bool has_timeline = fs::exists(timeline, ignored);
  if (!has_timeline && records.empty())
    throw_invalid_argument(folder.string() + " has neither " + report_timeline_file + " nor " +
                           profile_prefix +
                           "JOB.json: pass a folder that `lockstep run --report DIR` or `lockstep profile "
                           "--report DIR` has filled");
  if (has_timeline) {
    take_timeline(data, timeline);
  } else {
    data.notes.push_back(
        fmt::format("there is no {}: what happened when is not known", report_timeline_file));
  }
  const std::string& job = data.timeline.job;
  const auto of_job = std::ranges::find(records, record_file_name(job),
                                        [](const fs::path& path) { return path.filename().string(); });
  if (of_job != records.end()) {
    take_record(data, *of_job);
  } else if (job.empty() && !records.empty()) {
    take_record(data, records.front());
  } else if (std::ranges::all_of(data.timeline.ranks,
                                 [](const RankTimeline& rank) { return rank.mpi_calls.empty(); })) {
    // A program of MPI has none.
    data.notes.push_back(fmt::format("there is no {}: totals, memory and processor time are not known",
                                     record_file_name(job.empty() ? "JOB" : job)));
  }
  if (!data.record && data.timeline.ranks.empty()) {
    std::string why;
    for (const std::string& note : data.notes) why += (why.empty() ? "" : "; ") + note;
    throw Error(ErrorCode::corrupt_data, folder.string() + ": " + why + "; run again with --report");
  }
  return data;
}

}  // namespace lockstep::view
