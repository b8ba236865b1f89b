#include "report.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "command_line.h"
#include "lockstep/base/error.h"
#include "lockstep/view/report/leave_report.h"
#include "lockstep/view/report/report_text.h"

namespace {

namespace view = lockstep::view;

constexpr const char* report_after_help =
    R"(`lockstep run --report DIR` leaves in DIR what a report is made of, timeline.json and the record
lockstep_profile.JOB.json, and the report itself, report.html; `lockstep profile --report DIR` does the same of an MPI program,
without a record. This makes it again, and prints the same as text. Of two such folders it says what changed from the first to
the second, and makes a page of that where -o names one. Bandwidths are held against what the machine allows where
LOCKSTEP_MACHINE_FILE names what `lockstep bench --machine` has written.

The exit code is 0, 1 for a folder that cannot be read or a page that cannot be written, and 2 for wrong usage.

  lockstep report DIR
  lockstep report before after -o difference.html
)";

struct ReportFlags {
  std::vector<std::string> folders;
  std::string page;
};

void describe(CLI::App& app, ReportFlags& flags) {
  command_line::set_usage(
      app, "Usage: lockstep report DIR [-o FILE]\n       lockstep report BEFORE AFTER [-o FILE]\n");
  app.footer(report_after_help);
  app.add_option("DIR", flags.folders,
                 "Folders that `lockstep run --report` or `lockstep profile --report` has filled, one or two")
      ->required()
      ->expected(1, 2);
  app.add_option("-o,--output", flags.page, "Where the page goes [DIR/report.html; of two folders: nowhere]");
}

/// Writes the page, and prints the text. Returns the exit code.
int make(const ReportFlags& flags) {
  const view::ReportOptions options{.limits = view::MachineLimits::from_environment()};
  const view::RunData run = view::read_run(flags.folders[0]);
  const bool is_one = flags.folders.size() == 1;
  const view::ReportDocument document =
      is_one ? view::document_of(run, options)
             : view::difference_of(view::analyse(run, options),
                                   view::analyse(view::read_run(flags.folders[1]), options));
  std::string text = view::report_text(document);
  const std::filesystem::path page = !flags.page.empty() ? std::filesystem::path(flags.page)
                                     : is_one
                                         ? std::filesystem::path(flags.folders[0]) / view::report_page_file
                                         : std::filesystem::path();
  if (!page.empty()) {
    view::write_report_page(page, document, is_one ? &run.timeline : nullptr);
    text += "\nThe page is " + page.string() + "\n";
  }
  return command_line::print(text);
}

int complain(const std::exception& error, int exit_code) {
  (void)std::fprintf(stderr, "lockstep report: %s\n%s", error.what(),
                     exit_code == 2 ? "See `lockstep report --help`.\n" : "");
  return exit_code;
}

}  // namespace

int report_command(const std::vector<std::string>& arguments) {
  ReportFlags flags;
  CLI::App app("Says what a run's time went to, who was late, and what would be won by what.");
  describe(app, flags);
  try {
    command_line::parse(app, arguments);
    return make(flags);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const lockstep::Error& error) {
    return complain(error, error.code() == lockstep::ErrorCode::invalid_argument ? 2 : 1);
  } catch (const CLI::Error& error) {
    return complain(error, 2);
  } catch (const std::exception& error) {
    return complain(error, 1);
  }
}
