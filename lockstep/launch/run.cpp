#include "lockstep/launch/run.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/random_name.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/words.h"
#include "lockstep/launch/agents/follow.h"
#include "lockstep/launch/agents/gather.h"
#include "lockstep/launch/child.h"
#include "lockstep/launch/environment.h"
#include "lockstep/launch/guard.h"
#include "lockstep/launch/job.h"
#include "lockstep/launch/local_ranks.h"
#include "lockstep/launch/local_start.h"
#include "lockstep/launch/master_port.h"
#include "lockstep/launch/output/rank_output.h"
#include "lockstep/launch/program.h"
#include "lockstep/launch/terminal_input.h"

namespace lockstep::launch {
namespace {

constexpr int wrong_usage = 2;

void say(const std::string& line) { (void)!::write(STDERR_FILENO, (line + "\n").data(), line.size() + 1); }

/// Under which files have what its ranks print.
std::string run_name(const RunOptions& options, const std::string& job) {
  const std::string& begin = options.output.run;
  return begin.empty() ? job : begin + "_" + job;
}

Listener listen_for_store(const std::string& job) {
  return Listener::bind(Endpoint::unix_abstract(fmt::format("lockstep-{}-{}-0", ::getuid(), job)));
}

JobFacts facts_of(const RunOptions& options, const Attempt& attempt, const Endpoint& store,
                  const Placement& placement) {
  return {.ranks = options.ranks,
          .job = attempt.job,
          .store = store.to_string(),
          .master_port = pick_master_port("127.0.0.1", options.master_port),
          .host_name = base::host_name(),
          .cores = placement.cores,
          .threads = placement.threads,
          .restarts = attempt.restarts,
          .max_restarts = options.max_restarts,
          .has_views = survives_deaths(options)};
}

std::vector<std::string> paths_of(const std::vector<Program>& programs) {
  std::vector<std::string> paths;
  for (const Program& program : programs) paths.push_back(program.path);
  return paths;
}

JobEnd run_here(const RunOptions& options, const Attempt& attempt, const LocalStart& start,
                GuardLine& guard) {
  const Secret secret = Secret::random();
  RankOutput output(options.output, attempt.run, attempt.restarts);
  const auto places = place_ranks({options.ranks});
  output.expect(places, options.ranks);
  TerminalInput terminal;
  Listener store = listen_for_store(attempt.job);
  auto ranks = std::make_unique<LocalRanks>(
      LocalPlan{.places = places,
                .facts = facts_of(options, attempt, store.endpoint(), start.placement),
                .roles = roles_of(options),
                .programs = paths_of(start.programs),
                .function = options.function,
                .inherited = options.inherited,
                .environment = options.remote.variables,
                .folder = options.remote.folder,
                .placement = start.placement,
                .begins = options.begins.empty() ? std::nullopt : std::optional(options.begins.front()),
                .keeps_timeline = keeps_timeline(options),
                .signal_mask = guard.signal_mask},
      secret, output);
  ranks->start(terminal.open(STDIN_FILENO));
  ranks->serve_store(std::move(store), secret);
  Job::Hosts hosts;
  hosts.push_back(std::move(ranks));
  return Job(options, attempt, guard, output, terminal, std::move(hosts)).run();
}

JobEnd run_on_hosts(const RunOptions& options, const Attempt& attempt, GuardLine& guard) {
  RankOutput output(options.output, attempt.run, attempt.restarts);
  TerminalInput terminal;  // of no rank: the agent's rank 0 reads what we forward
  return Job(options, attempt, guard, output, terminal, agents::gather(options, attempt, guard, output))
      .run();
}

/// Until the ranks end well, or have failed as often as they may.
int run_attempts(const RunOptions& options, const std::function<JobEnd(const Attempt&)>& run_one) {
  Attempt attempt;
  std::optional<MetricsServer> metrics;
  if (options.metrics) {
    attempt.metrics = &metrics.emplace(*options.metrics);
    say("lockstep run: metrics are at " + metrics->address());
  }
  for (;; ++attempt.restarts) {
    attempt.previous_job = std::exchange(attempt.job, base::random_name());
    if (attempt.restarts == 0) attempt.run = run_name(options, attempt.job);
    try {
      const JobEnd end = run_one(attempt);
      if (!end.again) return end.exit_code;
      if (attempt.restarts == 0) attempt.first_failure = end.failure;
    } catch (const agents::CannotGather& error) {
      if (attempt.restarts == 0) throw;
      throw agents::CannotGather(
          error.exit_code(),
          fmt::format("{}\nlockstep run: given up after {}; what failed first of all: {}", error.what(),
                      base::counted(attempt.restarts, "restart"), attempt.first_failure));
    }
  }
}

constexpr auto time_to_find_leader = std::chrono::seconds(2);

/// Several launchers, of which this is one.
int run_as_node(const RunOptions& options, GuardLine& guard) {
  if (!options.nodes->leads) return agents::follow(options, guard);
  const auto run_one = [&](const Attempt& attempt) { return run_on_hosts(options, attempt, guard); };
  // Where two listen at the same moment, the kernel may refuse both.
  for (const auto deadline = Deadline::after(time_to_find_leader);;) {
    try {
      return run_attempts(options, run_one);
    } catch (const agents::PlaceTaken&) {
      if (!options.nodes->may_follow) throw;
    }
    if (deadline.expired() || agents::someone_leads(options)) return agents::follow(options, guard);
    std::this_thread::sleep_for(std::chrono::milliseconds(std::random_device()() % 50));
  }
}

}  // namespace

std::vector<Role> roles_of(const RunOptions& options) {
  if (options.roles.empty()) return {{.ranks = options.ranks, .command = options.command}};
  std::vector<Role> roles = options.roles;
  for (Role& role : roles) {
    if (role.command.empty()) role.command = options.command;
  }
  return roles;
}

std::string record_dir(const std::optional<std::string>& wish) {
  const std::string folder = wish.value_or(env::text("LOCKSTEP_RECORD_DIR").value_or("lockstep-records"));
  return folder == "none" ? std::string() : folder;
}

std::string timeline_file() {
  return env::text("LOCKSTEP_TIMELINE").value_or(env::text("HOROVOD_TIMELINE").value_or(""));
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
    LocalStart start;
    const bool here = is_here(options);
    if (here) {
      start = prepare_here(options);
      for (const Program& program : start.programs) {
        if (!program.problem.empty()) return fail(program.exit_code, program.problem);
      }
      if (!start.placement.line.empty()) say(start.placement.line);
    }
    const GuardLimits limits{.stopped = 2 * options.stop_grace + options.guard_grace,
                             .hurried = options.guard_grace};
    const auto run_job = [&](GuardLine line) {
      try {
        if (options.nodes) return run_as_node(options, line);
        return run_attempts(options, [&](const Attempt& attempt) {
          return here ? run_here(options, attempt, start, line) : run_on_hosts(options, attempt, line);
        });
      } catch (const CannotExecute& error) {
        return fail(cannot_execute, error.what());
      } catch (const CannotServe& error) {
        return fail(wrong_usage, error.what());
      } catch (const agents::CannotGather& error) {
        return fail(error.exit_code(), error.what());
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
