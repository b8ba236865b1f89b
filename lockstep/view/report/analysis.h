// A run as numbers: what its steps' time went to, who came late, what was moved how fast. Numbers only; verdict.h makes
// sentences of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/operation.h"
#include "lockstep/view/profile/machine_limits.h"
#include "lockstep/view/report/run_data.h"

namespace lockstep::view {

/// What a rank's time goes to, in the order of the waterfall from the ideal to the achieved step.
enum class Phase {
  compute,     ///< forward and backward
  data,        ///< waiting for the loader
  others,      ///< waiting for ranks that come later
  transfer,    ///< copying, reducing and moving that nothing covers
  optimizer,   ///< ranges of that name, and steps of a ShardedOptimizer
  checkpoint,  ///< ranges of that name
  rest,        ///< what has no name
};
inline constexpr std::size_t phase_count = 7;
/// Nanoseconds by Phase.
using PhaseTimes = std::array<double, phase_count>;
inline double& time_of(PhaseTimes& times, Phase phase) { return times[static_cast<std::size_t>(phase)]; }
inline double time_of(const PhaseTimes& times, Phase phase) { return times[static_cast<std::size_t>(phase)]; }

/// Calls of a step that it does not wait for at once, by their order within it: as a rule one for each bucket.
struct StepCall {
  Operation operation = Operation::barrier;
  double bytes = 0;  ///< mean, as all that follows
  double under_way_ns = 0;
  double exposed_ns = 0;  ///< of it, after the last gradient
  std::size_t count = 0;
};

/// Training steps that are like most: without the first, and without long ones.
struct StepFacts {
  std::size_t steps = 0;  ///< that the rest is about
  std::size_t warm_up = 0;
  std::size_t long_steps = 0;
  double long_extra_ns = 0;    ///< what these took more than a median, in all
  double median_ns = 0;        ///< from one step's begin to the next one's; mean of the ranks
  double median_error_ns = 0;  ///< standard error of the median
  double mean_ns = 0;
  PhaseTimes mean = {};                  ///< of ranks and steps; its sum is mean_ns
  std::vector<PhaseTimes> by_rank = {};  ///< by place in Analysis::ranks; zeros of a rank without steps
  double gradient_bytes = 0, buckets = 0, buckets_complete = 0;  ///< means; complete at the last gradient
  double under_way_ns = 0;  ///< of a step's own calls, as far as they are events
  double covered_ns = 0;    ///< of it, while the step computed
  std::vector<StepCall> calls = {};
};

struct Lateness {
  int rank = 0;
  std::size_t last = 0;               ///< meetings to which it came last
  double median_late_ns = 0;          ///< of those: after the median of the others
  double median_behind_first_ns = 0;  ///< of those: after the first
  double most_late_ns = 0;
  double gain_ns =
      0;  ///< each meeting would be so much earlier, in the mean, if it came with the last of the others
};

/// Where ranks wait for each other: the ends of backward passes, or collectives of a kind.
struct Meetings {
  static constexpr const char* of_steps = "training step";
  std::string kind = {};
  std::size_t count = 0;
  double wait_ns = 0;                ///< mean of ranks and meetings: until the last had come
  std::vector<Lateness> ranks = {};  ///< those that came last at least once, most often first
};

struct SizeRow {
  Operation operation = Operation::barrier;
  bool has_counts = false;
  int size_bin = 0;
  std::uint64_t calls = 0, bytes = 0;  ///< of all ranks
  std::uint64_t ns = 0, waited_ns = 0, blocked_ns = 0;
  double bus_bytes_per_second = 0;    ///< of a rank, while it moved data; 0: not known
  double limit_bytes_per_second = 0;  ///< that the machine allows; 0: not known
};

/// Calls of a routine of MPI, of all ranks.
struct MpiRow {
  std::string routine = {};
  std::uint64_t calls = 0, bytes = 0;
  double ns = 0;
  double waited_ns = 0;  ///< of it, until all had come; of what is no collective for all, not known
};

/// What went from a rank to one on another host.
struct LinkFacts {
  int from = 0, to = 0;
  double bytes = 0, busy_ns = 0;
  double bytes_per_second() const { return busy_ns > 0 ? bytes / (busy_ns * 1e-9) : 0; }
};

struct RankFacts {
  int rank = 0;
  int pid = 0;
  std::string host = {};
  double elapsed_ns = 0, user_ns = 0, system_ns = 0;  ///< 0: not known
  /// Share of the time in which it was ready to run that it had a core; nullopt: not known.
  std::optional<double> core_share = {};
  std::uint64_t most_resident_bytes = 0;
  double communication_ns = 0;  ///< that the program stayed in calls, waits for them and exposed in steps
  double waited_ns = 0;         ///< of it, for others
  double transfer_ns = 0;       ///< median of its collectives: from the arrival of all to the end
  std::size_t transfers = 0;    ///< of so many
  /// Of the time it waited, at least so much on a core; nullopt: not known, as of ranks with several threads.
  std::optional<double> burnt_ns = {};
  std::uint64_t left_out = 0;  ///< events
};

struct Failure {
  int rank = -1;  ///< that failed first; -1: not one alone
  std::string cause = {};
  std::vector<std::string> lines = {};  ///< where each rank was
};

/// Of who is in a job whose ranks may die and come back.
struct ViewChange {
  double after_ns = 0;     ///< the first rank had joined
  std::uint64_t view = 0;  ///< the number of the newest then
  std::string text = {};
};

struct Analysis {
  std::string name = {}, job = {}, hosts = {}, written_at = {};
  std::size_t host_count = 1;
  std::vector<RankFacts> ranks = {};  ///< in ascending order
  std::optional<StepFacts> steps = {};
  std::vector<Meetings> meetings = {};  ///< those with the most waiting first
  std::vector<SizeRow> sizes = {};      ///< those with the most time first
  std::vector<MpiRow> mpi = {};         ///< of a program of MPI: those with the most time first
  std::vector<LinkFacts> links = {};    ///< those that carried most first
  std::uint64_t calls = 0, small_calls = 0, control_messages = 0;
  double small_calls_ns = 0, control_ns = 0;                   ///< that programs stayed in them, of all ranks
  double elapsed_ns = 0, communication_ns = 0, waited_ns = 0;  ///< means of the ranks
  double data_ns = 0;  ///< mean of the ranks, in all: ranges named `data`
  std::uint64_t clock_error_ns = 0;
  std::vector<ViewChange> changes = {};  ///< in their order
  std::uint64_t changes_left_out = 0;    ///< before them
  std::optional<Failure> failure = {};
  int ended_by = 0;  ///< the user's signal; 0: the run ended by itself, or failed
  std::vector<std::string> notes = {};
};

/// What a report may be told besides.
struct ReportOptions {
  std::optional<MachineLimits> limits = {};  ///< that sizes are held against
};

Analysis analyse(const RunData& run, const ReportOptions& options = {});

/// 0 for none.
double median_of(std::vector<double> values);

}  // namespace lockstep::view
