#include "lockstep/view/report/leave_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/env.h"
#include "lockstep/base/file.h"
#include "lockstep/view/profile/run_profile.h"
#include "lockstep/view/report/report_page.h"
#include "lockstep/view/report/report_text.h"
#include "lockstep/view/report/timeline_file.h"

namespace lockstep::view {
namespace {

namespace fs = std::filesystem;

/// Of the run whose report is in `folder`; "": of none.
std::string job_of_report(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_regular_file(folder / report_timeline_file, ignored)) return "";
  const InputFile file(folder / report_timeline_file, "timeline");
  TimelineParser parser;
  parser.add(file.text(4096));
  return parser.finish().timeline.job;
}

std::string where_it_is(const fs::path& folder, const std::string& speaker) {
  return fmt::format("{}: the report is {}; `lockstep report {}` prints it\n", speaker,
                     (folder / report_page_file).string(), folder.string());
}

std::string why_it_is_not(const std::exception& error, const std::string& speaker) {
  return fmt::format("{}: the report could not be written: {}\n", speaker, error.what());
}

/// A report is of one run: the record of the one before goes, and not what else is there.
void remove_record_of(const std::string& job, const fs::path& folder) {
  std::error_code ignored;
  if (job.empty() || job.find('/') != std::string::npos) return;
  fs::remove(folder / record_file_name(job), ignored);
}

}  // namespace

ReportDocument document_of(const RunData& run, const ReportOptions& options) {
  const Analysis analysis = analyse(run, options);
  return document_of(analysis, judge(analysis));
}

void write_report_page(const fs::path& path, const ReportDocument& document, const Timeline* timeline) {
  write_file(path, "report", report_page(document, timeline));
}

std::string report_folder(const std::optional<std::string>& wish) {
  std::string folder = wish.value_or(env::text("LOCKSTEP_REPORT").value_or(""));
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

std::string what_a_report_replaces(const fs::path& folder, const std::string& speaker) {
  std::error_code ignored;
  if (folder.empty() || !fs::exists(folder / report_page_file, ignored)) return "";
  return fmt::format("{}: the report in {} is of another run, and is replaced at the end of this one\n",
                     speaker, folder.string());
}

std::string leave_report(const fs::path& folder, Timeline timeline, const trace::FlightRecord& record,
                         const ReportOptions& options, const std::string& speaker) {
  if (std::ranges::none_of(record.ranks, &trace::FlightRank::joined))
    return speaker + ": there is no report: " + why_nobody_joined(record) + "\n";
  timeline.names = TimelineNames::lockstep;  // which can be read again
  const RunData run{.name = folder.string(), .timeline = std::move(timeline), .record = record};
  const ReportDocument document = document_of(run, options);
  const std::string summary = report_summary(document, speaker);
  try {
    make_folders(folder, "report");
    remove_record_of(job_of_report(folder), folder);
    write_timeline_file(folder / report_timeline_file, run.timeline);
    write_file(folder / record_file_name(record.job), "record", record.to_text());
    write_report_page(folder / report_page_file, document, &run.timeline);
    return summary + where_it_is(folder, speaker);
  } catch (const std::exception& error) {
    return summary + why_it_is_not(error, speaker);
  }
}

std::string leave_report_of(const fs::path& folder, const ReportOptions& options,
                            const std::string& speaker) {
  try {
    const RunData run = read_run(folder);
    const ReportDocument document = document_of(run, options);
    write_report_page(folder / report_page_file, document, &run.timeline);
    return report_summary(document, speaker) + where_it_is(folder, speaker);
  } catch (const std::exception& error) {
    return why_it_is_not(error, speaker);
  }
}

}  // namespace lockstep::view
