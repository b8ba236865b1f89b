#include "run.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/run.h"
#include "np_option.h"

namespace {

constexpr const char* after_help =
    R"(Everything after the program belongs to the program. Each rank finds its place in RANK, WORLD_SIZE, LOCAL_RANK,
LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and their HOROVOD_ forms; lockstep::init() needs none of your help.
Rank 0 reads stdin. One Ctrl-C ends the job, a second one at once.

Each rank gets its share of the cores, at most SLURM_CPUS_PER_TASK of them where that is set, and as many threads in
OMP_NUM_THREADS unless you set that yourself.

A rank that still runs 30 s (LOCKSTEP_WARN_AFTER) after others have ended, or is stopped then, is named. Where only
stopped ones are left, they are ended after 10 minutes (LOCKSTEP_TIMEOUT).

The exit code is 0, or that of the rank that failed first (128 + signal where a signal killed it; 1 where it left
early with 0, or was stopped). A signal that ended the job gives 128 + its number (130 after Ctrl-C, 143 after SIGTERM), or 0 where
all ranks end with 0 then. Wrong usage is 2, a program that cannot run 126 or 127. It is 1 where the system refused
something, be it to take the ranks' output.

  lockstep run -np 4 ./train --epochs 3
  lockstep run -np 2 -- python3 train.py
)";

struct Flags {
  std::string ranks;
  std::string master_port;
  std::string grace;
  std::string record_dir;
  bool no_pin = false;
  bool no_prefix = false;
  bool nested = false;
};

class Help : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: lockstep run -np N [options] [--] program [arguments...]\n";
  }
};

void describe(CLI::App& app, Flags& flags) {
  app.formatter(std::make_shared<Help>());
  app.footer(after_help);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // see refuse_repetition()
  app.add_option("-n,--np", flags.ranks, "Number of ranks (also -np)");
  app.add_flag("--no-pin", flags.no_pin, "Leave all cores to all ranks");
  app.add_flag("--no-prefix", flags.no_prefix, "Pass output on without \"[rank] \" before each line");
  app.add_option("--grace", flags.grace,
                 "What ranks have to end after SIGINT, SIGTERM, ... before SIGKILL [2s]");
  app.add_option("--record-dir", flags.record_dir,
                 "Where a job that failed leaves what its ranks did last, for `lockstep explain`; none: "
                 "nowhere [LOCKSTEP_RECORD_DIR, or lockstep-records]");
  app.add_option("--master-port", flags.master_port, "MASTER_PORT for programs that read it [a free one]");
  app.add_flag("--nested", flags.nested, "Allow a run inside a rank of another run");
}

// CLI11 takes a value for a flag (--no-pin=5) as how often it is given.
void refuse_value_of_flag(const CLI::App& app, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const CLI::Option* option = name.size() < word.size() ? app.get_option_no_throw(name) : nullptr;
  if (option != nullptr && option->get_items_expected_max() == 0)
    lockstep::throw_invalid_argument(name + " takes no value");
}

// An option that is given again is a mistake in a script as a rule, and either value may be the one meant.
void refuse_repetition(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 0 || option->count() < 2) continue;
    const std::string name = option->get_name();
    lockstep::throw_invalid_argument((name == "--np" ? "-np" : name) + " is given more than once");
  }
}

// How many of `arguments` come before the program, which begins at the first word that is neither an option
// nor an option's value, or after "--". Turns -np among them into --np.
std::size_t end_of_options(const CLI::App& app, std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string& word = arguments[i];
    if (word == "--" || word.size() < 2 || word.front() != '-') return i;
    np_as_long_option(word);
    refuse_value_of_flag(app, word);
    const CLI::Option* option = app.get_option_no_throw(word);  // nullptr also for --name=value
    if (option != nullptr && option->get_items_expected_min() > 0) ++i;
  }
  return arguments.size();
}

lockstep::launch::RunOptions to_options(const Flags& flags, std::vector<std::string> command) {
  if (flags.ranks.empty()) lockstep::throw_invalid_argument("how many ranks? Pass -np N");
  if (command.empty()) lockstep::throw_invalid_argument("there is no program to run");
  lockstep::launch::RunOptions options{.command = std::move(command)};
  options.ranks =
      static_cast<int>(lockstep::env::parse_integer("-np", flags.ranks, 1, lockstep::launch::most_ranks));
  if (!flags.master_port.empty()) {
    options.master_port =
        static_cast<int>(lockstep::env::parse_integer("--master-port", flags.master_port, 1, 65535));
  }
  if (!flags.grace.empty()) {
    const auto most = std::chrono::hours(24);  // "off" too
    const auto grace =
        std::min<std::chrono::nanoseconds>(lockstep::env::parse_duration("--grace", flags.grace), most);
    options.stop_grace = std::chrono::duration_cast<std::chrono::milliseconds>(grace);
  }
  options.record_dir =
      lockstep::launch::record_dir(flags.record_dir.empty() ? std::nullopt : std::optional(flags.record_dir));
  options.stragglers = lockstep::launch::StragglerLimits::from_environment();
  options.pin = !flags.no_pin;
  options.prefix = !flags.no_prefix;
  options.nested = flags.nested;
  return options;
}

}  // namespace

int run_command(const std::vector<std::string>& arguments) {
  Flags flags;
  CLI::App app("Starts a program on several ranks of this host and sees them to their end.");
  describe(app, flags);
  try {
    std::vector<std::string> own = arguments;
    const std::size_t end = std::min(end_of_options(app, own), own.size());
    std::vector<std::string> command(own.begin() + static_cast<std::ptrdiff_t>(end), own.end());
    if (!command.empty() && command.front() == "--") command.erase(command.begin());
    own.resize(end);
    std::reverse(own.begin(), own.end());  // as CLI11 wants it
    app.parse(own);
    refuse_repetition(app);
    return lockstep::launch::run(to_options(flags, std::move(command)));
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "lockstep run: %s\nSee `lockstep run --help`.\n", error.what());
    return 2;
  }
}
