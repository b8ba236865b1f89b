// What a report is made of: the timeline of a run and its record. The launcher has both in its memory when a run ends;
// afterwards they are read from the folder of its report, as far as they can be.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/trace/flight_record.h"
#include "lockstep/view/profile/timeline.h"

namespace lockstep::view {

inline constexpr const char* report_timeline_file = "timeline.json";
inline constexpr const char* report_page_file = "report.html";

struct RunData {
  std::string name = {};  ///< how the user knows it: its folder
  Timeline timeline = {};
  std::optional<trace::FlightRecord> record = {};
  std::vector<std::string> notes = {};  ///< what is missing or could not be read, a sentence each
};

/// Reads `folder`/timeline.json, and the record of the same job, lockstep_profile.JOB.json. Throws Error: invalid_argument
/// where `folder` is none or has neither, corrupt_data where neither can be read; says where and what to do.
RunData read_run(const std::filesystem::path& folder);

}  // namespace lockstep::view
