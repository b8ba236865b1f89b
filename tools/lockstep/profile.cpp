#include "profile.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <utility>

#include "command_line.h"
#include "libraries.h"
#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/random_name.h"
#include "lockstep/launch/program.h"
#include "lockstep/view/report/leave_report.h"
#include "mpi_family.h"
#include "mpitrace/rescue.h"

namespace {

namespace fs = std::filesystem;
using lockstep::mpitrace::Family;
using Variables = std::vector<std::pair<std::string, std::string>>;

struct ProfileFlags {
  std::string folder = ".";
  std::string timeline;
  std::string report;
  std::string family;
  bool all = false, sites = false, barrier = false;
  std::vector<std::string> command;
};

void describe(CLI::App& app, ProfileFlags& flags) {
  app.add_option("--dir", flags.folder, "Where the profiles go [.]")->type_name("DIR");
  app.add_option("--timeline", flags.timeline,
                 "File for what all ranks called when, for trace viewers: JSON, or Perfetto's own format "
                 "where it ends in .pftrace [LOCKSTEP_TIMELINE, or none]")
      ->type_name("FILE");
  app.add_option(
         "--report", flags.report,
         "Folder for a report: how much of the time is MPI, who came late to collectives and what that cost; "
         "with the timeline that it is made of")
      ->type_name("DIR");
  app.add_option("--family", flags.family,
                 "Of the program's MPI: openmpi, mpich (also Intel MPI) or abi [found out]");
  app.add_flag("--all", flags.all, "A profile for each rank, not for four of them alone");
  app.add_flag("--sites", flags.sites, "Also sums for each place in the program that calls MPI");
  app.add_flag("--barrier", flags.barrier, "A timed barrier before each blocking collective");
  app.footer(
      "lockstep profile [OPTIONS] -- mpirun -np 4 ./app    runs it, and writes mpi_profile.JOB.RANK\n"
      "lockstep profile [--dir DIR] [--all]                writes the profiles and timelines of ranks that "
      "were killed before");
}

void say(const std::string& text) { (void)std::fprintf(stderr, "lockstep profile: %s\n", text.c_str()); }

Family family_for(const ProfileFlags& flags) {
  if (!flags.family.empty()) {
    const auto family = lockstep::mpitrace::family_named(flags.family);
    if (!family)
      lockstep::throw_invalid_argument("--family " + flags.family + " is none of openmpi, mpich, abi");
    return *family;
  }
  const auto family = family_of_command(flags.command);
  if (!family)
    lockstep::throw_invalid_argument(
        "no word of the command is a program that is linked with an MPI, nor a launcher "
        "of one: say which it is with --family openmpi, mpich or abi");
  return *family;
}

/// mpi4py takes our functions for an MPI that is loaded, and cannot tell from them whose.
std::string mpi4py_name(Family family) {
  return family == Family::standard ? "mpiabi" : std::string(lockstep::mpitrace::name_of(family));
}

Variables variables_for(const ProfileFlags& flags, Family family, const std::string& run) {
  const fs::path library = find_library(lockstep::mpitrace::library_for(family));
  Variables variables = {{"LD_PRELOAD", preload_of(library, std::getenv("LD_PRELOAD"))},
                         {"LOCKSTEP_PROFILE", flags.folder},
                         {"LOCKSTEP_PROFILE_RUN", run}};
  if (std::getenv("MPI4PY_MPIABI") == nullptr) variables.emplace_back("MPI4PY_MPIABI", mpi4py_name(family));
  if (!flags.timeline.empty()) variables.emplace_back("LOCKSTEP_TIMELINE", flags.timeline);
  if (flags.all) variables.emplace_back("LOCKSTEP_PROFILE_ALL", "1");
  if (flags.sites) variables.emplace_back("LOCKSTEP_PROFILE_SITES", "1");
  if (flags.barrier) variables.emplace_back("LOCKSTEP_PROFILE_BARRIER", "1");
  return variables;
}

/// Open MPI's mpirun passes to other hosts only what -x names; other launchers pass everything.
std::vector<std::string> words_with(const std::vector<std::string>& command, const Variables& variables) {
  std::vector<std::string> words = {command.front()};
  if (is_open_mpi_launcher(command.front())) {
    for (const auto& [name, value] : variables) words.insert(words.end(), {"-x", name});
  }
  words.insert(words.end(), command.begin() + 1, command.end());
  return words;
}

volatile sig_atomic_t child = 0;
void pass_on(int signal) {
  if (child > 0) ::kill(static_cast<pid_t>(child), signal);
}

/// Its exit code; 128 + signal where one ended it, as shells have it.
int run_to_its_end(std::vector<std::string> words, const Variables& variables) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) lockstep::throw_system("fork");
  if (pid == 0) {
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    ::execvp(arguments[0], arguments.data());
    ::dprintf(STDERR_FILENO, "lockstep profile: %s: %s\n", arguments[0], std::strerror(errno));
    ::_exit(127);
  }
  child = pid;
  // The terminal's signals reach the command by themselves; what it leaves is to be written after them.
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGQUIT, SIG_IGN);
  ::signal(SIGTERM, pass_on);
  ::signal(SIGHUP, pass_on);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  child = 0;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// False if something could not be written.
bool write_what_is_left(const ProfileFlags& flags, const std::string& run) {
  const auto profiles = lockstep::mpitrace::rescue(flags.folder, run, flags.all);
  const auto timelines = lockstep::mpitrace::rescue_timelines(flags.folder, run, flags.timeline);
  for (const std::string& line : profiles.lines) say(line);
  for (const std::string& line : timelines.lines) say(line);
  if (profiles.lines.empty() && timelines.lines.empty() && run.empty())
    say("no rank has left anything in " + flags.folder);
  return !profiles.has_failed && !timelines.has_failed;
}

/// The file for the timeline by its whole path; an error if it could not be written.
std::string checked_timeline(const std::string& wanted) {
  if (wanted.empty()) return "";
  std::string file = fs::absolute(wanted).lexically_normal();
  const lockstep::FileReplacement made_and_removed(file, "timeline");
  return file;
}

/// Changes when a file is written, also where it replaces one of the same name.
std::pair<std::uint64_t, fs::file_time_type> state_of(const std::string& file) {
  struct stat status {};
  std::error_code none;
  if (::stat(file.c_str(), &status) != 0) return {};
  return {status.st_ino, fs::last_write_time(file, none)};
}

/// The timeline that a report is made of is in its folder.
void choose_report(ProfileFlags& flags) {
  if (flags.report.empty()) return;
  if (!flags.timeline.empty())
    lockstep::throw_invalid_argument("--report DIR has the timeline in DIR: leave out --timeline");
  lockstep::make_folders(flags.report, "report");
  flags.report = fs::canonical(flags.report);
  (void)std::fputs(lockstep::view::what_a_report_replaces(flags.report, "lockstep profile").c_str(), stderr);
  flags.timeline = fs::path(flags.report) / lockstep::view::report_timeline_file;
}

void leave_report(const ProfileFlags& flags) {
  if (!flags.report.empty())
    (void)std::fputs(lockstep::view::leave_report_of(flags.report, {}, "lockstep profile").c_str(), stderr);
}

int profile(ProfileFlags flags) {
  const bool has_command = !flags.command.empty();
  choose_report(flags);
  if (has_command) {
    const auto program =
        lockstep::launch::find_program(flags.command.front(), lockstep::launch::search_path());
    if (program.exit_code != 0) {
      say(program.problem);
      return program.exit_code;
    }
    if (flags.timeline.empty()) flags.timeline = lockstep::env::text("LOCKSTEP_TIMELINE").value_or("");
  }
  flags.timeline = checked_timeline(flags.timeline);
  lockstep::make_folders(flags.folder, "profiles");
  flags.folder = fs::canonical(flags.folder);
  if (!has_command) {
    const auto before = state_of(flags.timeline);
    const bool is_written = write_what_is_left(flags, "");
    if (state_of(flags.timeline) != before) leave_report(flags);
    return is_written ? 0 : 1;
  }
  const std::string run = lockstep::base::random_name();
  const Variables variables = variables_for(flags, family_for(flags), run);
  const auto timeline_before = state_of(flags.timeline);
  const int exit_code = run_to_its_end(words_with(flags.command, variables), variables);
  const bool is_written = write_what_is_left(flags, run);
  const bool has_timeline = !flags.timeline.empty() && state_of(flags.timeline) != timeline_before;
  if (!flags.timeline.empty() && is_written && !has_timeline)
    say("there is no timeline: no rank has left any calls");
  if (has_timeline) leave_report(flags);
  return exit_code == 0 && !is_written ? 1 : exit_code;
}

}  // namespace

int profile_command(const std::vector<std::string>& arguments) {
  ProfileFlags flags;
  CLI::App app("Profiles an MPI program: which routines it calls, how often, how long, with which sizes.");
  command_line::set_usage(
      app, "Usage: lockstep profile [options] -- mpirun -np 4 ./app\n       lockstep profile --dir DIR\n");
  describe(app, flags);
  try {
    const auto end = std::find(arguments.begin(), arguments.end(), "--");
    std::vector<std::string> own(arguments.begin(), end);
    if (end != arguments.end()) flags.command.assign(end + 1, arguments.end());
    if (end != arguments.end() && flags.command.empty())
      lockstep::throw_invalid_argument("there is no command behind --");
    command_line::parse(app, std::move(own));
    return profile(std::move(flags));
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const std::exception& error) {
    say(std::string(error.what()) + "\nSee `lockstep profile --help`.");
    return 2;
  }
}
