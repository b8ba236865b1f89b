#include "lockstep/launch/run.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/child.h"
#include "lockstep/launch/guard.h"
#include "lockstep/launch/job.h"
#include "lockstep/launch/placement.h"
#include "lockstep/launch/program.h"
#include "lockstep/topology/topology.h"

namespace lockstep::launch {
namespace {

constexpr int wrong_usage = 2;
constexpr int cannot_execute = 126;  // as shells have it

void say(const std::string& line) { (void)!::write(STDERR_FILENO, (line + "\n").data(), line.size() + 1); }

void require_sense(const RunOptions& options) {
  if (options.ranks < 1 || options.ranks > most_ranks) {
    throw_invalid_argument(
        fmt::format("-np {} is not a number of ranks from 1 to {}", options.ranks, most_ranks));
  }
  if (options.command.empty() && !options.function) throw_invalid_argument("there is no program to run");
  if (options.master_port < 0 || options.master_port > 65535)
    throw_invalid_argument("--master-port is no port");
  if (!options.nested && env::text("LOCKSTEP_JOB")) {
    throw_invalid_argument("this is already rank " + env::text("RANK").value_or("?") +
                           " of a lockstep run; start the inner job outside of it, or pass --nested");
  }
}

std::string search_path() {
  const char* path = std::getenv("PATH");
  return path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
}

}  // namespace

std::string record_dir(const std::optional<std::string>& wish) {
  const std::string folder = wish.value_or(env::text("LOCKSTEP_RECORD_DIR").value_or("lockstep-records"));
  return folder == "none" ? std::string() : folder;
}

int run(const RunOptions& options) {
  const auto fail = [&](int exit_code, const std::string& why) {
    if (options.on_failure) {
      options.on_failure({.exit_code = exit_code, .summary = why + "\n"});
    } else {
      say("lockstep run: " + why);
    }
    return exit_code;
  };
  try {
    require_sense(options);
    Program program;
    if (!options.function) program = find_program(options.command.front(), search_path());
    if (!program.problem.empty()) return fail(program.exit_code, program.problem);
    const Placement placement = place(topology::find_cores(), placement_request(options.ranks, options.pin));
    if (!placement.line.empty()) say(placement.line);
    const GuardLimits limits{.stopped = 2 * options.stop_grace + options.guard_grace,
                             .hurried = options.guard_grace};
    const auto run_job = [&](GuardLine line) {
      try {
        Job job({.options = options, .program = program.path, .placement = placement}, std::move(line));
        return job.run();
      } catch (const CannotExecute& error) {
        return fail(cannot_execute, error.what());
      } catch (const std::exception& error) {
        return fail(1, error.what());
      }
    };
    return run_guarded(run_job, limits);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) return fail(1, error.what());
    return fail(wrong_usage,
                std::string(error.what()) + (options.function ? "" : "\nSee `lockstep run --help`."));
  }
}

}  // namespace lockstep::launch
