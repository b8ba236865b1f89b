// The profile of a run of Lockstep's: flat profiles of its ranks in files, and what all of them come to in some lines for the
// terminal. Made from the totals of its record, so that ranks that were killed are in it.
#pragma once

#include <string>

#include "lockstep/trace/flight_record.h"
#include "lockstep/view/profile/flat_profile.h"
#include "lockstep/view/profile/profile_options.h"

namespace lockstep::view {

/// Begins the names of a profile's files, of which the record ends with .json.
inline constexpr const char* profile_prefix = "lockstep_profile.";
/// "lockstep_profile.JOB.json"
std::string record_file_name(const std::string& job);

/// One rank's calls by operation, in the order of Operation; those of named operations after them, and then the messages by
/// which ranks agree on these. The time of a row is what the program stayed in these calls and in waits for them: what else they
/// were under way is overlapped.
RankSums sums_of(const trace::FlightRecord& record, const trace::FlightRank& rank);

/// What that rank's process took, and its calls.
RankCosts costs_of(const trace::FlightRank& rank);

/// The text of that rank's file: the flat profile, and after it what its layout has no place for, waiting and transfer apart,
/// and steps of training.
std::string profile_text(const trace::FlightRecord& record, const trace::FlightRank& rank,
                         const RunExtremes& run);

/// Writes it to `folder`/lockstep_profile.JOB.RANK. Throws Error{system}.
void write_profile_of(const std::string& folder, const trace::FlightRecord& record,
                      const trace::FlightRank& rank, const RunExtremes& run);

/// Means over the ranks, in lines. With `limits` also what large calls reach of them.
std::string profile_summary(const trace::FlightRecord& record,
                            const std::optional<MachineLimits>& limits = std::nullopt);

/// Of a record in which no rank has joined: why there is nothing to show.
std::string why_nobody_joined(const trace::FlightRecord& record);

/// Writes `options.folder`/lockstep_profile.JOB.RANK, and the record itself as lockstep_profile.JOB.json for `lockstep report`.
/// Returns lines for the user, as of `speaker`: the summary, where the files are, or why they could not be written; one where no rank has used
/// Lockstep.
std::string leave_profile(const ProfileOptions& options, const trace::FlightRecord& record,
                          const std::string& speaker);

}  // namespace lockstep::view
