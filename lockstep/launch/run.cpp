#include "lockstep/launch/run.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/words.h"
#include "lockstep/launch/agents/gather.h"
#include "lockstep/launch/child.h"
#include "lockstep/launch/environment.h"
#include "lockstep/launch/guard.h"
#include "lockstep/launch/hosts/this_host.h"
#include "lockstep/launch/job.h"
#include "lockstep/launch/local_ranks.h"
#include "lockstep/launch/output.h"
#include "lockstep/launch/placement.h"
#include "lockstep/launch/program.h"
#include "lockstep/launch/terminal_input.h"
#include "lockstep/topology/topology.h"

namespace lockstep::launch {
namespace {

constexpr int wrong_usage = 2;
constexpr int cannot_execute = 126;  // as shells have it

void say(const std::string& line) { (void)!::write(STDERR_FILENO, (line + "\n").data(), line.size() + 1); }

void require_sense(const RunOptions& options) {
  const int most = options.hosts.empty() ? most_ranks : most_slots;
  if (options.ranks < 1 || options.ranks > most)
    throw_invalid_argument(fmt::format("-np {} is not a number of ranks from 1 to {}", options.ranks, most));
  for (const Host& host : options.hosts) {
    if (host.slots > most_ranks)
      throw_invalid_argument(
          fmt::format("{} ranks on {}: a host takes {} at most", host.slots, host.name, most_ranks));
  }
  if (options.command.empty() && !options.function) throw_invalid_argument("there is no program to run");
  if (options.master_port < 0 || options.master_port > 65535)
    throw_invalid_argument("--master-port is no port");
  if (!options.nested && env::text("LOCKSTEP_JOB")) {
    throw_invalid_argument("this is already rank " + env::text("RANK").value_or("?") +
                           " of a lockstep run; start the inner job outside of it, or pass --nested");
  }
}

std::string random_name() {
  static constexpr char digits[] = "0123456789abcdef";
  const Secret source = Secret::random();
  std::string name;
  for (const std::byte byte : source.bytes().first(8)) {
    name += digits[std::to_integer<unsigned>(byte) >> 4U];
    name += digits[std::to_integer<unsigned>(byte) & 15U];
  }
  return name;
}

Listener listen_for_store(const std::string& job) {
  return Listener::bind(Endpoint::unix_abstract(fmt::format("lockstep-{}-{}-0", ::getuid(), job)));
}

JobFacts facts_of(const RunOptions& options, const std::string& job, const Endpoint& store,
                  const Placement& placement) {
  const auto wished = static_cast<std::uint16_t>(options.master_port);
  return {.ranks = options.ranks,
          .job = job,
          .store = store.to_string(),
          .master_port = Listener::bind(Endpoint::tcp("127.0.0.1", wished)).endpoint().port,
          .host_name = base::host_name(),
          .cores = placement.cores,
          .threads = placement.threads};
}

int run_here(const RunOptions& options, const std::string& program, const Placement& placement,
             GuardLine& guard) {
  const std::string name = random_name();
  const Secret secret = Secret::random();
  RankOutput output(options.ranks, options.prefix);
  TerminalInput terminal;
  Listener store = listen_for_store(name);
  auto ranks =
      std::make_unique<LocalRanks>(LocalPlan{.places = place_ranks({options.ranks}),
                                             .facts = facts_of(options, name, store.endpoint(), placement),
                                             .program = program,
                                             .command = options.command,
                                             .function = options.function,
                                             .inherited = options.inherited,
                                             .environment = options.remote.variables,
                                             .folder = options.remote.folder,
                                             .placement = placement,
                                             .signal_mask = guard.signal_mask},
                                   secret, output);
  ranks->start(terminal.open(STDIN_FILENO));
  ranks->serve_store(std::move(store), secret);
  Job::Hosts hosts;
  hosts.push_back(std::move(ranks));
  return Job(options, name, guard, output, terminal, std::move(hosts)).run();
}

int run_on_hosts(const RunOptions& options, GuardLine& guard) {
  const std::string name = random_name();
  RankOutput output(options.ranks, options.prefix);
  TerminalInput terminal;  // of no rank: the agent's rank 0 reads what we forward
  return Job(options, name, guard, output, terminal, agents::gather(options, name, guard, output)).run();
}

/// The program's name as it is found from here.
std::string in_folder(const RunOptions& options) {
  const std::string& name = options.command.front();
  const std::filesystem::path folder = options.remote.folder;
  if (folder.empty()) return name;
  if (!std::filesystem::is_directory(folder))
    throw_invalid_argument("--wdir " + folder.string() + " is no folder here");
  return name.find('/') == std::string::npos ? name : std::filesystem::absolute(folder / name).string();
}

bool is_here(const RunOptions& options) {
  const bool nowhere_else = options.hosts.size() == 1 && is_this_host(options.hosts.front().name);
  return options.hosts.empty() || (nowhere_else && options.remote.shell.empty());
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
    Placement placement;
    const bool here = is_here(options);
    if (here) {
      if (!options.function) program = find_program(in_folder(options), search_path());
      if (!program.problem.empty()) return fail(program.exit_code, program.problem);
      placement = place(topology::find_cores(), placement_request(options.ranks, options.pin));
      if (!placement.line.empty()) say(placement.line);
    }
    const GuardLimits limits{.stopped = 2 * options.stop_grace + options.guard_grace,
                             .hurried = options.guard_grace};
    const auto run_job = [&](GuardLine line) {
      try {
        return here ? run_here(options, program.path, placement, line) : run_on_hosts(options, line);
      } catch (const CannotExecute& error) {
        return fail(cannot_execute, error.what());
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
