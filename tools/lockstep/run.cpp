#include "run.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "check_build.h"
#include "command_line.h"
#include "libraries.h"
#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/group/engine_choice.h"
#include "lockstep/launch/dry_run.h"
#include "lockstep/launch/metrics_server.h"
#include "lockstep/launch/run.h"
#include "lockstep/view/profile/timeline_place.h"
#include "lockstep/view/report/leave_report.h"
#include "lockstep/view/report/run_data.h"
#include "named_hosts.h"
#include "run_flags.h"
#include "run_hosts.h"
#include "run_roles.h"

namespace {

using lockstep::throw_invalid_argument;
using lockstep::launch::OutputOptions;
using lockstep::launch::RunOptions;
using lockstep::launch::StreamChoice;

/// "NAME=VALUE" is that, "NAME" what it is here.
std::pair<std::string, std::string> variable_of(const std::string& word) {
  const std::size_t end = std::min(word.find('='), word.size());
  const std::string name = word.substr(0, end);
  if (name.empty()) throw_invalid_argument("-x \"" + word + "\" names no variable");
  if (end < word.size()) return {name, word.substr(end + 1)};
  const char* value = std::getenv(name.c_str());
  if (value == nullptr)
    throw_invalid_argument("-x " + name + ": there is no such variable here; -x " + name + "=VALUE sets one");
  return {name, value};
}

void choose_remote(const RunFlags& flags, lockstep::launch::RemoteOptions& remote) {
  remote.shell = remote_shell(flags.shell);
  remote.agent = flags.agent;
  remote.folder = flags.folder;
  for (const std::string& word : flags.variables) remote.variables.push_back(variable_of(word));
  if (!flags.tree_width.empty()) {
    remote.tree_width = static_cast<std::size_t>(
        lockstep::env::parse_integer("--tree-width", flags.tree_width, 1, lockstep::launch::most_ranks));
  }
  if (!flags.start_timeout.empty())
    remote.start_timeout = milliseconds_of("--start-timeout", flags.start_timeout);
}

/// What torchrun and horovodrun can do with the ranks' output.
OutputOptions choose_output(const RunFlags& flags) {
  OutputOptions output{.prefix = !flags.no_prefix, .run = flags.run_id};
  if (output.run.find('/') != std::string::npos)
    throw_invalid_argument("--rdzv-id " + output.run + " names a folder of --log-dir, and has a / in it");
  if (!flags.local_ranks_filter.empty())
    output.local_ranks_shown =
        lockstep::launch::parse_local_ranks("--local-ranks-filter", flags.local_ranks_filter);
  if (!flags.redirects.empty()) output.redirected = StreamChoice::parse("--redirects", flags.redirects);
  if (!flags.tee.empty()) output.teed = StreamChoice::parse("--tee", flags.tee);
  const bool has_choice = !output.redirected.empty() || !output.teed.empty();
  if (!flags.output_filename.empty()) {
    if (has_choice || !flags.log_dir.empty())
      throw_invalid_argument(
          "--output-filename is horovodrun's, --log-dir, -r and -t are torchrun's: pass one or the others");
    output.layout = OutputOptions::Layout::horovodrun;
    output.folder = flags.output_filename;
    output.teed = StreamChoice::all();
  } else if (!flags.log_dir.empty() || has_choice) {
    output.folder = flags.log_dir.empty() ? "lockstep-logs" : flags.log_dir;
    if (!has_choice) output.teed = StreamChoice::all();
  }
  return output;
}

std::string timeline_file(const RunFlags& flags) {
  if (!flags.timeline.empty()) return flags.timeline;
  if (!flags.timeline_filename.empty()) return flags.timeline_filename;
  return lockstep::launch::timeline_file();
}

std::optional<lockstep::Endpoint> metrics_address(const RunFlags& flags) {
  using lockstep::launch::parse_metrics_address;
  if (!flags.metrics.empty()) return parse_metrics_address("--metrics", flags.metrics);
  const auto text = lockstep::env::text("LOCKSTEP_METRICS");
  return text ? std::optional(parse_metrics_address("LOCKSTEP_METRICS", *text)) : std::nullopt;
}

std::chrono::nanoseconds explain_after(const RunFlags& flags) {
  const auto set = flags.explain_after.empty()
                       ? lockstep::env::duration("LOCKSTEP_EXPLAIN_AFTER")
                       : lockstep::env::parse_duration("--explain-after", flags.explain_after);
  const auto time = set.value_or(RunOptions{}.explain_after);
  if (time != time.zero() && time < std::chrono::seconds(1))  // less is no standstill
    throw_invalid_argument("--explain-after (LOCKSTEP_EXPLAIN_AFTER) is neither 0 nor at least 1s");
  return time == time.zero() ? time.max() : time;
}

/// A run of days should not end with the news that its files never had a place.
void require_places(const RunOptions& options, const RunFlags& flags) {
  if (flags.profile_all && options.profile.folder.empty())
    throw_invalid_argument("--profile-all without --profile DIR, or LOCKSTEP_PROFILE");
  if (!options.profile.folder.empty()) lockstep::make_folders(options.profile.folder, "profile");
  if (!options.output.folder.empty()) lockstep::make_folders(options.output.folder, "ranks' output");
  if (!options.report.empty()) {
    lockstep::make_folders(options.report, "report");
    const lockstep::FileReplacement made_and_removed(
        std::filesystem::path(options.report) / lockstep::view::report_page_file, "report");
  }
  if (!options.timeline.empty())
    lockstep::view::require_timeline_place(options.timeline, "--timeline " + options.timeline,
                                           options.timeline_names);
}

/// Of the ranks: what `--engine` says. An MPI's processes know each other by its own launcher alone.
void choose_engine(const RunFlags& flags, RunOptions& options) {
  using lockstep::EngineChoice;
  const auto told = flags.engine.empty() ? std::nullopt : std::optional(flags.engine);
  if (lockstep::choose_engine(told, "--engine") == EngineChoice::mpi) {
    throw_invalid_argument(
        "the engine mpi takes a job that the MPI's own launcher has started: set LOCKSTEP_ENGINE=mpi, and "
        "start it by mpirun, "
        "mpiexec or srun");
  }
  if (told) options.remote.variables.emplace_back("LOCKSTEP_ENGINE", *told);
}

/// Of the ranks: MKL's own choice is made over by a library of ours, which comes before what is preloaded anyway.
void choose_mkl(const RunFlags& flags, RunOptions& options) {
  if (!flags.mkl_avx512) return;
  auto& variables = options.remote.variables;
  const auto told = std::ranges::find(variables, "LD_PRELOAD", &std::pair<std::string, std::string>::first);
  const char* others = told == variables.end() ? std::getenv("LD_PRELOAD") : told->second.c_str();
  const std::string preload = preload_of(find_library("liblockstep_mkl_avx512.so"), others);
  if (told == variables.end()) {
    variables.emplace_back("LD_PRELOAD", preload);
  } else {
    told->second = preload;
  }
}

/// The command that a Python program needs.
std::vector<std::string> with_python(const RunFlags& flags, std::vector<std::string> command) {
  if (flags.module && (flags.no_python || flags.run_path))
    throw_invalid_argument(
        "-m, --run-path and --no-python say different things of the program; pass one of them");
  if (flags.no_python && flags.run_path)
    throw_invalid_argument(
        "--run-path and --no-python say different things of the program; pass one of them");
  if (command.empty() || !(flags.module || flags.run_path)) return command;
  std::vector<std::string> whole = {lockstep::env::text("PYTHON_EXEC").value_or("python3"), "-u"};
  if (flags.module) whole.emplace_back("-m");
  std::ranges::move(command, std::back_inserter(whole));
  return whole;
}

RunOptions to_options(RunFlags& flags, const std::vector<std::string>& words) {
  std::vector<std::vector<std::string>> commands = split_commands(flags, words);
  for (std::vector<std::string>& command : commands) command = with_python(flags, std::move(command));
  if (const int ranks = ranks_of_roles(flags);
      ranks > 0 && flags.ranks.empty() && flags.ranks_per_host.empty())
    flags.ranks = std::to_string(ranks);
  RunOptions options{.command = commands.front()};
  choose_remote(flags, options.remote);
  choose_hosts(flags, options);
  if (std::ranges::any_of(commands, [](const auto& command) { return command.empty(); }))
    throw_invalid_argument("there is no program to run");
  if (!flags.master_port.empty() && !options.nodes) {
    options.master_port =
        static_cast<int>(lockstep::env::parse_integer("--master-port", flags.master_port, 1, 65535));
  }
  if (!flags.grace.empty()) options.stop_grace = milliseconds_of("--grace", flags.grace);
  choose_roles(flags, commands, options);
  choose_engine(flags, options);
  choose_mkl(flags, options);
  options.output = choose_output(flags);
  options.record_dir =
      lockstep::launch::record_dir(flags.record_dir.empty() ? std::nullopt : std::optional(flags.record_dir));
  options.timeline = timeline_file(flags);
  const auto names = lockstep::view::timeline_names(flags.timeline_names);
  options.timeline_names = names ? *names : lockstep::view::timeline_names_from_environment();
  options.report =
      lockstep::view::report_folder(flags.report.empty() ? std::nullopt : std::optional(flags.report));
  options.profile = lockstep::view::ProfileOptions::from_environment(
      flags.profile.empty() ? std::nullopt : std::optional(flags.profile), !options.report.empty());
  require_places(options, flags);
  options.profile.all_ranks = options.profile.all_ranks || flags.profile_all;
  options.metrics = metrics_address(flags);
  options.explain_after = explain_after(flags);
  options.stragglers = lockstep::launch::StragglerLimits::from_environment();
  options.pin = !flags.no_pin;
  options.nested = flags.nested;
  return options;
}

int run_dry(const RunOptions& options) {
  const auto found = lockstep::launch::dry_run(options);
  (void)std::fputs(found.text.c_str(), found.exit_code == 0 ? stdout : stderr);
  return found.exit_code;
}

}  // namespace

int run_command(const std::vector<std::string>& arguments) {
  RunFlags flags;
  CLI::App app("Starts a program on several ranks, on this host or on several, and sees them to their end.");
  describe(app, flags);
  try {
    std::vector<std::string> own = arguments;
    const std::size_t end = std::min(end_of_options(app, own), own.size());
    std::vector<std::string> command(own.begin() + static_cast<std::ptrdiff_t>(end), own.end());
    if (!command.empty() && command.front() == "--") command.erase(command.begin());
    own.resize(end);
    command_line::parse(app, std::move(own));
    refuse_repetition(app);
    if (flags.check_build) return std::fputs(describe_build().c_str(), stdout) < 0 ? 1 : 0;
    const RunOptions options = to_options(flags, command);
    const std::string aside = say_what_means_nothing(app);
    if (!aside.empty()) (void)std::fprintf(stderr, "lockstep run: %s\n", aside.c_str());
    if (flags.dry_run) return run_dry(options);
    const std::string replaced = lockstep::view::what_a_report_replaces(options.report, "lockstep run");
    (void)std::fputs(replaced.c_str(), stderr);
    return lockstep::launch::run(options);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "lockstep run: %s\nSee `lockstep run --help`.\n", error.what());
    return 2;
  }
}
