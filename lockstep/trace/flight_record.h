// The flight record: what the ranks of one host did last, as one file. The launcher writes it when a job
// fails, `lockstep explain` reads it. docs/flight_record.md has the format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/process_costs.h"
#include "lockstep/trace/event.h"
#include "lockstep/trace/open_calls.h"
#include "lockstep/trace/sent.h"
#include "lockstep/trace/totals.h"

namespace lockstep::trace {

inline constexpr const char* flight_record_file = "flight_record.json";

/// Limits of parse(), which whoever makes a record keeps to.
struct FlightLimits {
  static constexpr std::size_t bytes = std::size_t{256} << 20;  ///< of the file
  static constexpr std::size_t values = std::size_t{1} << 24;   ///< numbers, texts, lists and objects in it
  static constexpr std::size_t text_bytes = 8192;               ///< of each text
  static constexpr int ranks = 1 << 16;
  static constexpr std::size_t groups = std::size_t{1} << 16;
  static constexpr std::size_t events = std::size_t{1} << 19;  ///< of all ranks together
  static constexpr std::size_t changes = 256;                  ///< of who is in the job: the last ones
};

struct FlightGroup {
  std::uint32_t number = 0;  ///< as in events and calls
  std::string name = {};
  std::vector<int> members = {};  ///< group rank -> world rank; -1: not known, as of a rank on another host
};

/// Why the job failed first, as the ranks of the host agreed.
struct FlightCause {
  ErrorCode code = ErrorCode::aborted;
  int culprit = -1;   ///< world rank that is to blame; -1 where it is not one alone
  int reporter = -1;  ///< world rank that found out; -1: the launcher
  std::string text = {};
};

/// What a rank's process was about at FlightRecord::at_ns.
enum class ProcessState {
  unknown,
  running,
  sleeping,
  blocked,  ///< in a system call that no signal ends, on a disk or a network file system as a rule
  stopped,  ///< by a signal (SIGSTOP, SIGTSTP) or a debugger
  gone,
};
std::string_view to_string(ProcessState state);

/// How the process that the launcher had started for a rank ended.
struct FlightEnding {
  int exit_code = 0;
  int signal = 0;            ///< 0: none ended it
  int order = 0;             ///< those that were found at once have the same, later ones a greater
  bool by_launcher = false;  ///< the launcher had told it to
};

/// What a rank's process took. Times of the clock; 0: not known, or not yet.
struct FlightCosts {
  std::uint64_t joined_at_ns = 0;  ///< init() was done
  std::uint64_t left_at_ns = 0;    ///< it said goodbye; of one that did not, when it ended
  base::ProcessCosts process = {};
  /// From init() to its goodbye its threads were on a core, and ready to run without one; zeros: not known.
  std::uint64_t on_core_ns = 0, core_wait_ns = 0;
};

struct FlightRank {
  int rank = 0;
  int pid = 0;          ///< of the process that joined; of one that did not, of the one that was started
  bool joined = false;  ///< it called lockstep::init()
  bool left = false;    ///< it said goodbye: its world is gone in an orderly way
  ProcessState state = ProcessState::unknown;
  std::optional<FlightEnding> ending = {};   ///< nullopt: it still ran when the record was made
  std::vector<OpenCall> open_calls = {};     ///< the oldest first; those that failed as they were then
  std::uint64_t open_calls_left_out = 0;     ///< for which there was no room
  std::vector<CollectiveEvent> events = {};  ///< the last calls that are over, the oldest first
  // Of all that it did:
  FlightCosts costs = {};
  StepTotals steps = {};
  std::vector<TotalsRow> totals = {};
  CallTotals totals_left_out = {};  ///< of calls for which there was no row
  std::vector<Sent> sent = {};      ///< to other hosts; known of ranks that left
};

/// Of who is in a job whose ranks may die and come back.
struct FlightChange {
  std::uint64_t at_ns = 0;
  std::uint64_t view = 0;  ///< the number of the newest view then
  std::string text = {};   ///< as the launcher has said it
};

/// Times are nanoseconds of the host's CLOCK_MONOTONIC.
struct FlightRecord {
  std::string job = {};
  std::string host = {};
  std::string written_at = {};  ///< "2025-03-01T12:00:00Z"
  /// When the launcher noticed the first failure; of a job that goes on: now.
  std::uint64_t at_ns = 0;
  bool goes_on = false;
  int ended_by = 0;  ///< the signal by which the user ended the job, before anything had failed; 0: none
  std::optional<FlightCause> first_cause = {};
  std::vector<FlightChange> changes = {};  ///< the last ones, in their order
  std::uint64_t changes_left_out = 0;      ///< before them
  std::vector<FlightGroup> groups = {};
  std::vector<FlightRank> ranks = {};  ///< in ascending order

  std::string to_text() const;
  /// Takes any text. Throws corrupt_data beginning with `name`: no JSON, another format or version, a field
  /// that is missing, of another kind or out of range, or more of something than FlightLimits says.
  static FlightRecord parse(const std::string& text, const std::string& name);
};

/// Of all its calls, those without a row too.
CallTotals all_calls(const FlightRank& rank);

/// How many ranks the world has, also where some are missing here.
int world_size(const FlightRecord& record);

/// Of a record from a host whose clock is `nanoseconds` behind the reader's: its times as the reader's clock has them.
void shift_times(FlightRecord& record, std::int64_t nanoseconds);

}  // namespace lockstep::trace
