#include "mpitrace/run_timeline.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <span>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/base/words.h"
#include "lockstep/trace/clock.h"
#include "lockstep/trace/clock_offset.h"
#include "mpitrace/clocks.h"
#include "mpitrace/event_file.h"
#include "mpitrace/left_files.h"
#include "mpitrace/merge.h"
#include "mpitrace/routines.h"
#include "mpitrace/say.h"
#include "mpitrace/tell_all.h"

namespace lockstep::mpitrace {
namespace {

template <std::size_t size>
void copy(const std::string& text, char (&field)[size]) {
  text.copy(field, size - 1);
}

void fill(EventsHeader& header, const TimelineRun& run, std::uint64_t clock) {
  header.routines = routine_count;
  header.rank = run.rank;
  header.ranks = run.ranks;
  header.pid = ::getpid();
  header.start = run.start;
  header.begin_ns = trace::now_ns();
  header.clock = clock;
  copy(base::host_name(), header.host);
  copy(run.job, header.job);
  copy(run.run, header.run);
  copy(run.timeline, header.timeline);
  header.magic = events_magic;
}

/// The first rank without room speaks for all.
void say_who_is_missing(const TimelineRun& run, const Events* events, const std::string& problem) {
  const std::vector<char> has_room = tell_all<char>(events != nullptr ? 1 : 0, run.ranks);
  std::vector<int> missing;
  for (int rank = 0; rank < run.ranks; ++rank) {
    if (has_room[static_cast<std::size_t>(rank)] == 0) missing.push_back(rank);
  }
  if (missing.empty() || missing.front() != run.rank) return;
  const bool are_all = missing.size() == has_room.size();
  say((are_all ? "there will be no timeline: "
               : fmt::format("the timeline will be without {}: ", base::name_rank_ranges(missing))) +
      problem);
}

std::vector<std::string> files_of(const TimelineRun& run) {
  std::vector<std::string> files = files_with(run.folder, std::string(events_beginning) + run.job + ".");
  std::erase_if(files, [&](const std::string& path) {
    try {
      const std::string begins = InputFile(path, "timeline's file").text(event_names_at);
      return read_about(std::as_bytes(std::span(begins)), path).start != run.start;
    } catch (const std::exception&) {
      return true;  // of another start, which did not come far
    }
  });
  return files;
}

/// Of each rank whether it is in the timeline that was written.
std::vector<char> write_timeline_of_all(const TimelineRun& run) {
  std::vector<char> is_in_it(static_cast<std::size_t>(run.ranks));
  try {
    const std::vector<std::string> files = files_of(run);
    if (files.empty()) return is_in_it;  // none had room
    const Merged merged = merge(files);
    view::write_timeline_file(run.timeline, merged.timeline);
    say(view::timeline_line(run.timeline, merged.timeline));
    for (const int rank : merged.ranks) {
      if (rank < run.ranks) is_in_it[static_cast<std::size_t>(rank)] = 1;
    }
  } catch (const std::exception& error) {
    say(
        fmt::format("{}; the ranks' files stay in {}, and `lockstep profile --dir {} --timeline FILE` makes "
                    "a timeline of them",
                    error.what(), run.folder, run.folder));
  }
  return is_in_it;
}

}  // namespace

std::string problem_with(const std::string& timeline) {
  try {
    const FileReplacement made_and_removed(timeline, "timeline");
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

Events* begin_timeline(const TimelineRun& run) {
  std::string problem;
  Events* const events = Events::create(rank_file(run.folder, events_beginning, run.job, run.rank), problem);
  const std::uint64_t clock = trace::clock_of_this_system();
  if (events != nullptr) fill(events->header(), run, clock);
  say_who_is_missing(run, events, problem);
  ThreadEvents::ahead_ns = compare_clocks(events, clock, run.rank, run.ranks, true).ahead_ns;
  return events;
}

void end_timeline(const TimelineRun& run, Events* events) {
  const Clocks clocks = compare_clocks(events, trace::clock_of_this_system(), run.rank, run.ranks, false);
  if (events != nullptr && clocks.are_several) events->flush();
  tell_all<char>(0, run.ranks);  // all have written
  std::vector<char> is_in_it(static_cast<std::size_t>(run.ranks));
  if (run.rank == 0) is_in_it = write_timeline_of_all(run);
  char mine = 0;
  using Scatter = int(const void*, int, MPI_Datatype, void*, int, MPI_Datatype, int, MPI_Comm);
  pmpi<Scatter>("PMPI_Scatter")(is_in_it.data(), 1, byte_type(), &mine, 1, byte_type(), 0, comm_world());
  if (events != nullptr && mine != 0) events->remove_file();
}

}  // namespace lockstep::mpitrace
