// A report's files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/trace/flight_record.h"
#include "lockstep/view/report/document.h"
#include "lockstep/view/report/run_data.h"

namespace lockstep::view {

/// The report of a run, from what is known of it.
ReportDocument document_of(const RunData& run, const ReportOptions& options = {});

/// Writes the page, whole or not at all. Throws Error: system, invalid_argument (`path` is no file's).
void write_report_page(const std::filesystem::path& path, const ReportDocument& document,
                       const Timeline* timeline);

/// The folder that a run was told to leave its report in: `wish`, or LOCKSTEP_REPORT; empty: none.
std::string report_folder(const std::optional<std::string>& wish);

/// What `folder` would lose: a line for the user, as of `speaker`, where it has a report already; else "".
std::string what_a_report_replaces(const std::filesystem::path& folder, const std::string& speaker);

/// Writes timeline.json, lockstep_profile.JOB.json and report.html into `folder`, in the place of those of another run.
/// Returns lines for the user, as of `speaker`: the verdict and what is most important, where the files are, or why they could
/// not be written.
std::string leave_report(const std::filesystem::path& folder, Timeline timeline,
                         const trace::FlightRecord& record, const ReportOptions& options,
                         const std::string& speaker);

/// Writes report.html of what is in `folder` already, as read_run() reads it. Returns lines for the user, as leave_report().
std::string leave_report_of(const std::filesystem::path& folder, const ReportOptions& options,
                            const std::string& speaker);

}  // namespace lockstep::view
