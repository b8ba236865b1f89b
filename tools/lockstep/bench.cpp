#include "bench.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "calibration_run.h"
#include "command_line.h"
#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/median.h"
#include "lockstep/base/split.h"
#include "lockstep/group/init.h"
#include "lockstep/launch/run.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/topology/topology.h"
#include "machine.h"
#include "measure.h"
#include "np_option.h"

namespace {

using lockstep::Operation;
using lockstep::Where;

constexpr const char* bench_after_help =
    R"(Without --calibrate: what each collective takes, by the size of a rank's buffer (all_reduce, reduce, broadcast)
or of one rank's block, for buffers of the program's own and for buffers from Group::allocate().

With --calibrate: measures every algorithm that can do a call, and writes the table from which jobs choose. Those
take it where LOCKSTEP_TUNING_FILE names it; only rank 0 reads it. A table has rules for numbers of ranks: calibrate
once for each that matters, each time with the table of the time before in LOCKSTEP_TUNING_FILE.

With --machine: measures what the machine can do at best, without collectives: memory by the number of cores, copies
into another rank's arena, messages. Profiles and reports hold their figures against it where LOCKSTEP_MACHINE_FILE
names the file.

  lockstep bench -np 4
  lockstep bench -np 4 --calibrate --out host.json
  LOCKSTEP_TUNING_FILE=host.json lockstep run -np 4 ./train
  lockstep run -np 4 lockstep bench --calibrate       as ranks of any launcher, also on several hosts
  lockstep bench -np 4 --machine
)";

constexpr std::uint64_t least_max_bytes = 4096;
constexpr std::uint64_t most_max_bytes = std::uint64_t{1} << 30;

struct BenchFlags {
  std::string ranks;
  std::string operations;
  std::string max_bytes = "4M";
  std::string passes = "5";
  std::string out;
  bool calibrate = false;
  bool machine = false;
};

struct BenchOptions {
  std::optional<int> ranks = {};
  measure::CalibrationPlan plan = {};
  bool calibrate = false;
  bool machine = false;
  std::string out = {};
};

void describe(CLI::App& app, BenchFlags& flags) {
  command_line::set_usage(app,
                          "Usage: lockstep bench [-np N] [--calibrate|--machine] [--out FILE] [options]\n");
  app.footer(bench_after_help);
  app.add_option("-n,--np", flags.ranks, "Number of ranks on this host (also -np) [one a core]");
  app.add_flag("--calibrate", flags.calibrate, "Measure all algorithms, and write the table");
  app.add_flag("--machine", flags.machine, "Measure what the machine can do at best, and write it")
      ->excludes("--calibrate");
  app.add_option("--out", flags.out, "Where that is written [lockstep-tuning.json, lockstep-machine.json]");
  app.add_option("--operations", flags.operations, "Only these, such as all_reduce,broadcast [all]");
  app.add_option("--max-bytes", flags.max_bytes, "The largest buffer of a rank, 4K to 1G [4M]");
  app.add_option("--passes", flags.passes, "Each figure is the median of so many [5]");
}

std::vector<Operation> operations_named(const std::string& list) {
  if (list.empty()) return measure::operations();
  std::vector<Operation> named;
  for (const std::string& name : lockstep::base::split(list, ',')) {
    const auto& known = measure::operations();
    const auto found = std::ranges::find_if(known, [&](Operation one) { return to_string(one) == name; });
    if (found == known.end()) {
      std::string all;
      for (const Operation one : known) all += (all.empty() ? "" : ", ") + std::string(to_string(one));
      lockstep::throw_invalid_argument("--operations: there is no collective \"" + name + "\"; there are " +
                                       all);
    }
    named.push_back(*found);
  }
  return named;
}

BenchOptions to_options(const BenchFlags& flags) {
  BenchOptions options{.calibrate = flags.calibrate, .machine = flags.machine, .out = flags.out};
  const bool writes = options.calibrate || options.machine;
  if (!writes && !options.out.empty())
    lockstep::throw_invalid_argument("--out is for --calibrate and --machine, which write a file");
  if (options.out.empty()) options.out = options.calibrate ? "lockstep-tuning.json" : "lockstep-machine.json";
  if (!flags.ranks.empty()) {
    options.ranks =
        static_cast<int>(lockstep::env::parse_integer("-np", flags.ranks, 2, lockstep::launch::most_ranks));
  }
  options.plan.operations = operations_named(flags.operations);
  options.plan.most_bytes = lockstep::env::parse_bytes("--max-bytes", flags.max_bytes);
  if (options.plan.most_bytes < least_max_bytes || options.plan.most_bytes > most_max_bytes)
    lockstep::throw_invalid_argument("--max-bytes is " + flags.max_bytes + "; it must be from 4K to 1G");
  options.plan.passes = static_cast<int>(lockstep::env::parse_integer("--passes", flags.passes, 1, 1000));
  return options;
}

void show_times(const lockstep::Group& world, const measure::CalibrationPlan& plan) {
  const auto say = [&](const std::string& line) {
    if (world.rank() == 0) (void)std::fputs(line.c_str(), stdout);
  };
  measure::PrivateMemory memory(plan.most_bytes);
  const measure::Buffers buffers(world, memory);
  say(fmt::format("{} ranks; microseconds a call, and bytes / time\n{:<16}{:>10}{:>14}{:>11}{:>14}{:>11}\n",
                  world.size(), "operation", "bytes", "own memory", "GB/s", "arena", "GB/s"));
  for (const Operation operation : plan.operations) {
    for (std::uint64_t bytes = 8; measure::buffer_bytes(operation, bytes, world.size()) <= plan.most_bytes;
         bytes *= 8) {
      const auto time = [&](Where where) {
        std::vector<double> times;
        for (int pass = 0; pass < plan.passes; ++pass)
          times.push_back(buffers.time({operation, where, bytes}, 5 * plan.seconds_each));
        return lockstep::base::median(std::move(times));
      };
      const double own = time(Where::private_memory);
      if (operation == Operation::barrier) {
        say(fmt::format("{:<16}{:>10}{:>14.2f}\n", to_string(operation), "", own * 1e6));
        break;
      }
      const double arena = time(Where::arena);
      const auto speed = [&](double seconds) { return static_cast<double>(bytes) / seconds * 1e-9; };
      say(fmt::format("{:<16}{:>10}{:>14.2f}{:>11.2f}{:>14.2f}{:>11.2f}\n", to_string(operation), bytes,
                      own * 1e6, speed(own), arena * 1e6, speed(arena)));
    }
  }
}

void be_a_rank(const BenchOptions& options) {
  const lockstep::Group world = lockstep::init();
  if (world.size() < 2) {
    lockstep::throw_invalid_argument("there is one rank, and nothing to measure; start two or more");
  }
  if (!options.calibrate && !options.machine) return show_times(world, options.plan);
  const auto say = [&](const std::string& line) {
    if (world.rank() == 0) (void)std::fprintf(stderr, "lockstep bench: %s\n", line.c_str());
  };
  std::optional<lockstep::FileReplacement> file;  // made first: who cannot have it need not measure
  if (world.rank() == 0) file.emplace(options.out, options.machine ? "machine file" : "tuning table");
  const std::string text = options.machine
                               ? measure::measure_machine(world, options.plan.passes, say).to_text()
                               : measure::run_calibration(world, options.plan, say).to_text() + "\n";
  if (!file) return;
  file->write(std::as_bytes(std::span(text)));
  file->commit();
  say(options.machine
          ? fmt::format("wrote {0}; profiles and reports take it with LOCKSTEP_MACHINE_FILE={0}", options.out)
          : fmt::format("wrote {0}; jobs of {1} ranks take it with LOCKSTEP_TUNING_FILE={0}", options.out,
                        world.size()));
}

int measure_all(const BenchOptions& options) {
  const bool is_rank = lockstep::env::text("RANK").has_value();
  if (is_rank && options.ranks) {
    lockstep::throw_invalid_argument("-np starts ranks, and this process is one already: leave it out");
  }
  if (is_rank) {
    be_a_rank(options);
    return 0;
  }
  const int ranks = options.ranks.value_or(std::max(2, lockstep::topology::available_cores()));
  lockstep::spawn({.ranks = ranks, .prefix = false, .record_dir = "none"}, [&](int) { be_a_rank(options); });
  return 0;
}

}  // namespace

int bench_command(const std::vector<std::string>& arguments) {
  BenchFlags flags;
  CLI::App app("Measures the collectives on this machine.");
  describe(app, flags);
  BenchOptions options;
  try {
    std::vector<std::string> words = arguments;
    for (std::string& word : words) np_as_long_option(word);
    command_line::parse(app, std::move(words));
    options = to_options(flags);
  } catch (...) {
    return command_line::answer(app, "bench");
  }
  try {
    return measure_all(options);
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "lockstep bench: %s\n", error.what());
    return 1;
  }
}
