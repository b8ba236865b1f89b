#include "run.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/hosts/allocation.h"
#include "lockstep/launch/hosts/host_list.h"
#include "lockstep/launch/hosts/this_host.h"
#include "lockstep/launch/run.h"
#include "np_option.h"

namespace {

using lockstep::launch::Host;
using lockstep::launch::RunOptions;

constexpr const char* after_help =
    R"(Everything after the program belongs to the program. Each rank finds its place in RANK, WORLD_SIZE, LOCAL_RANK,
LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and their HOROVOD_ forms; lockstep::init() needs none of your help.
Rank 0 reads stdin. One Ctrl-C ends the job, a second one at once.

On several hosts an agent is started on each by ssh, which has to get in without a password; `lockstep` and the program are
at the same paths there. Inside an allocation of Slurm, PBS or Cobalt that has other hosts, these are taken without -H.

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
  lockstep run -np 8 -H server1:4,server2:4 ./train
)";

struct Flags {
  std::string ranks;
  std::string hosts;
  std::string hostfile;
  std::vector<std::string> variables;
  std::string folder;
  std::string shell;
  std::string agent;
  std::string start_timeout;
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
    return "Usage: lockstep run [-np N] [-H HOST:SLOTS,...] [options] [--] program [arguments...]\n";
  }
};

void describe(CLI::App& app, Flags& flags) {
  app.formatter(std::make_shared<Help>());
  app.footer(after_help);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // see refuse_repetition()
  app.add_option("-n,--np", flags.ranks, "Number of ranks (also -np) [one for each slot of the hosts]");
  app.add_option("-H,--host,--hosts", flags.hosts, "Where: HOST:SLOTS,...; no :SLOTS is one");
  app.add_option("--hostfile,--machinefile", flags.hostfile,
                 "The same from a file, a host a line, as for mpirun and horovodrun");
  app.add_option("-x", flags.variables, "NAME or NAME=VALUE: set in all ranks; may be repeated")
      ->type_size(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--wdir", flags.folder, "Folder that ranks begin in [this one]");
  app.add_option("--ssh", flags.shell,
                 "Command that gets to a host, with its options [LOCKSTEP_SSH, or ssh]");
  app.add_option("--agent", flags.agent, "Where `lockstep` is on the other hosts [the same path as here]");
  app.add_option("--start-timeout", flags.start_timeout, "For all hosts to be ready [30s]");
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
    const bool may_repeat = option->get_name() == "-x";
    if (option->get_items_expected_max() == 0 || may_repeat || option->count() < 2) continue;
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

std::optional<int> wished_ranks(const Flags& flags, int most) {
  if (flags.ranks.empty()) return std::nullopt;
  return static_cast<int>(lockstep::env::parse_integer("-np", flags.ranks, 1, most));
}

/// Where, and how many ranks on each: as the user says it, else as the batch system does.
void choose_hosts(const Flags& flags, RunOptions& options) {
  if (!flags.hosts.empty() && !flags.hostfile.empty())
    lockstep::throw_invalid_argument("-H and --hostfile both say where; pass one of them");
  std::vector<Host> hosts;
  bool has_slots = true;
  if (!flags.hosts.empty()) {
    hosts = lockstep::launch::parse_host_list(flags.hosts);
  } else if (!flags.hostfile.empty()) {
    hosts = lockstep::launch::read_hostfile(flags.hostfile);
  } else if (auto allocation = lockstep::launch::find_allocation()) {
    const bool is_only_here =
        allocation->hosts.size() == 1 && lockstep::launch::is_this_host(allocation->hosts.front().name);
    if (!is_only_here || flags.ranks.empty()) hosts = std::move(allocation->hosts);
    has_slots = allocation->has_slots;
    if (allocation->system == lockstep::launch::Allocation::System::slurm && options.remote.shell.empty())
      options.remote.by_srun = true;
  }
  if (hosts.empty()) {
    const auto wished = wished_ranks(flags, lockstep::launch::most_ranks);
    if (!wished) lockstep::throw_invalid_argument("how many ranks? Pass -np N");
    options.ranks = *wished;
    return;
  }
  const auto wished = wished_ranks(flags, lockstep::launch::most_slots);
  if (!wished && !has_slots) lockstep::throw_invalid_argument("how many ranks? Pass -np N");
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  options.ranks = wished.value_or(slots);
  options.hosts = has_slots ? share_out(options.ranks, hosts) : share_evenly(options.ranks, hosts);
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

/// "NAME=VALUE" is that, "NAME" what it is here.
std::pair<std::string, std::string> variable_of(const std::string& word) {
  const std::size_t end = std::min(word.find('='), word.size());
  const std::string name = word.substr(0, end);
  if (name.empty()) lockstep::throw_invalid_argument("-x \"" + word + "\" names no variable");
  if (end < word.size()) return {name, word.substr(end + 1)};
  const char* value = std::getenv(name.c_str());
  if (value == nullptr)
    lockstep::throw_invalid_argument("-x " + name + ": there is no such variable here; -x " + name +
                                     "=VALUE sets one");
  return {name, value};
}

void choose_remote(const Flags& flags, lockstep::launch::RemoteOptions& remote) {
  remote.shell =
      words_of(!flags.shell.empty() ? flags.shell : lockstep::env::text("LOCKSTEP_SSH").value_or(""));
  remote.agent = flags.agent;
  remote.folder = flags.folder;
  for (const std::string& word : flags.variables) remote.variables.push_back(variable_of(word));
  if (!flags.start_timeout.empty()) {
    const auto most = std::chrono::hours(24);
    const auto time = std::min<std::chrono::nanoseconds>(
        lockstep::env::parse_duration("--start-timeout", flags.start_timeout), most);
    remote.start_timeout = std::chrono::ceil<std::chrono::milliseconds>(time);
  }
}

RunOptions to_options(const Flags& flags, std::vector<std::string> command) {
  RunOptions options{.command = std::move(command)};
  choose_remote(flags, options.remote);
  choose_hosts(flags, options);
  if (options.command.empty()) lockstep::throw_invalid_argument("there is no program to run");
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
  CLI::App app("Starts a program on several ranks, on this host or on several, and sees them to their end.");
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
