#include "explain.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>

#include "command_line.h"
#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/launch/live_record.h"
#include "lockstep/view/explain/explain.h"

namespace {

namespace fs = std::filesystem;
using lockstep::trace::FlightLimits;
using lockstep::trace::FlightRecord;

constexpr const char* explain_after_help =
    R"(`lockstep run` writes the record when a job fails, and says where. The first line of the answer names the cause,
then each rank has a line. A job that hangs and has not failed yet is asked by the process id of its `lockstep run`, or
of one of its ranks; it does not notice.

The exit code is 0, or 2 for wrong usage and for a record that cannot be read.

  lockstep explain lockstep-records/0d4e9150f95f72f8
  lockstep explain --pid 4242
)";

struct ExplainFlags {
  std::string path;
  std::string pid;
};

void describe(CLI::App& app, ExplainFlags& flags) {
  command_line::set_usage(app, "Usage: lockstep explain DIR|FILE\n       lockstep explain --pid PID\n");
  app.footer(explain_after_help);
  app.add_option("DIR|FILE", flags.path, "A flight record, or the folder that holds it");
  app.add_option("--pid", flags.pid, "A process of a job that runs");
}

/// The youngest record in a folder below `folder`; empty if there is none.
fs::path newest_below(const fs::path& folder) {
  fs::path newest;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    const fs::path file = entry->path() / lockstep::trace::flight_record_file;
    if (!fs::exists(file, ignored)) continue;
    if (newest.empty() || fs::last_write_time(file, ignored) > fs::last_write_time(newest, ignored))
      newest = file;
  }
  return newest.parent_path();
}

fs::path find_file(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  fs::path file = path / lockstep::trace::flight_record_file;
  if (fs::exists(file, ignored)) return file;
  const fs::path newest = newest_below(path);
  lockstep::throw_invalid_argument(
      "there is no " + std::string(lockstep::trace::flight_record_file) + " in " + path.string() +
      (newest.empty() ? "" : "; the youngest below it is in " + newest.string()));
}

FlightRecord read_file(const fs::path& path) {
  const lockstep::InputFile file(path, "flight record");
  if (file.size() > FlightLimits::bytes) {
    lockstep::throw_invalid_argument(
        fmt::format("{} has more than {} bytes: it is no flight record", path.string(), FlightLimits::bytes));
  }
  return FlightRecord::parse(file.text(), path.string());
}

FlightRecord read_record(const ExplainFlags& flags) {
  if (flags.path.empty() == flags.pid.empty())
    lockstep::throw_invalid_argument("pass a flight record, or the folder that holds it, or --pid");
  if (flags.pid.empty()) return read_file(find_file(flags.path));
  const auto most = std::numeric_limits<pid_t>::max();
  const auto pid = lockstep::env::parse_integer("--pid", flags.pid, 1, most);
  return lockstep::launch::read_running_job(static_cast<pid_t>(pid));
}

}  // namespace

int explain_command(const std::vector<std::string>& arguments) {
  ExplainFlags flags;
  CLI::App app("Says which rank of a job is where, and why the others wait.");
  describe(app, flags);
  try {
    command_line::parse(app, arguments);
    return command_line::print(lockstep::view::explain(read_record(flags)));
  } catch (...) {
    return command_line::answer(app, "explain");
  }
}
