// A run as a picture over time: what each rank did when, in the JSON of trace viewers (chrome://tracing, Perfetto) or in Perfetto's
// own format, one file for all ranks.
//
//   rank 0   training     [ step 17            [forward, backward  ] [exposed] ]
//            calls        [all_reduce [waiting][transfer]]
//            named        [grad.0 [waiting for others to submit][       ]]       named operations, whatever they were fused into
//            thread 0     [ loss ]                                               the program's own ranges
//            MPI calls    [MPI_Allreduce [waiting][transfer]]                    of any MPI program (mpitrace/)
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/trace/event.h"
#include "lockstep/trace/spans.h"
#include "lockstep/view/profile/mpi_call.h"
#include "lockstep/view/profile/timeline_names.h"

namespace lockstep::view {

/// Of one rank, each list in any order. Times of all ranks are of one clock.
struct RankTimeline {
  int rank = 0;
  int pid = 0;
  std::string host = {};
  std::vector<trace::CollectiveEvent> calls = {};
  std::vector<trace::TrainingStepEvent> steps = {};
  std::vector<trace::SpanEvent> spans = {};
  std::vector<MpiCall> mpi_calls = {};
  std::vector<std::string> span_names = {};  ///< by SpanEvent::name
  std::uint64_t left_out =
      0;  ///< events that were overwritten before they were read, or for which there was no room
  std::string left_out_when = {};  ///< "": not known
};

/// "?" where it is not known.
inline std::string_view name_of(const RankTimeline& rank, const trace::SpanEvent& span) {
  return span.name < rank.span_names.size() ? std::string_view(rank.span_names[span.name]) : "?";
}

/// All times of calls, steps and spans (of MPI calls none) become what `to_ours` makes of them; 0 stays, which is no time.
void shift_times(RankTimeline& rank, const std::function<std::uint64_t(std::uint64_t)>& to_ours);

/// Rows of a rank by their `tid`; those of a kind begin here, in the order of FreeRows or of threads. None is a rank's number:
/// viewers take a thread of its process's number for the main thread.
inline constexpr int first_training_row = 10000, first_call_row = 20000, first_named_row = 30000,
                     first_thread_row = 100000;

struct Timeline {
  std::string job = {};
  std::vector<RankTimeline> ranks = {};
  std::vector<std::pair<std::uint32_t, std::string>> groups = {};  ///< names by the numbers in calls
  std::uint64_t clock_error_ns = 0;     ///< the most that clocks of hosts may be apart
  std::vector<std::string> notes = {};  ///< what else has to be known of it
  TimelineNames names = TimelineNames::lockstep;
};

/// By its ending, as Perfetto's own tools name theirs: .pftrace or .perfetto-trace.
bool is_perfettos(const std::filesystem::path& path);

/// Passes the file to `write` piece by piece: JSON, or, `in_perfettos` own format, packets of protocol buffers. Times in it are
/// counted from the first event on. Horovod's names are always in JSON.
void write_timeline(const Timeline& timeline, const std::function<void(std::string_view)>& write,
                    bool in_perfettos = false);

/// The same into a file, whole or as it was, in the format that its name asks for. Throws as FileReplacement does.
void write_timeline_file(const std::filesystem::path& path, const Timeline& timeline);

/// For the user: that it is at `path`, and what has to be known of it.
std::string timeline_line(const std::string& path, const Timeline& timeline);

/// Writes it, and returns a line of `speaker` with that, or why it could not be written.
std::string leave_timeline(const std::string& path, const Timeline& timeline, const std::string& speaker);

}  // namespace lockstep::view
