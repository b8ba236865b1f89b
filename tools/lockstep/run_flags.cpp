#include "run_flags.h"

#include <algorithm>
#include <array>
#include <memory>

#include "command_line.h"
#include "lockstep/base/error.h"
#include "np_option.h"

namespace {

constexpr const char* run_after_help =
    R"(Everything after the program belongs to the program. Each rank finds its place in RANK, WORLD_SIZE, LOCAL_RANK,
LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and their HOROVOD_ forms; lockstep::init() needs none of your help.
Rank 0 reads stdin. One Ctrl-C ends the job, a second one at once.

On several hosts an agent is started on each by ssh, which has to get in without a password; `lockstep` and the program are
at the same paths there. Inside an allocation of Slurm, PBS or Cobalt that has other hosts, these are taken without -H.
With --nnodes the same command is started on each host by you, and LOCKSTEP_SECRET_FILE names a file with the same secret.

Each rank gets its share of the cores, at most SLURM_CPUS_PER_TASK of them where that is set, and as many threads in
OMP_NUM_THREADS unless you set that yourself.

A rank that still runs 30 s (LOCKSTEP_WARN_AFTER) after others have ended, or is stopped then, is named. Where only
stopped ones are left, they are ended after 10 minutes (LOCKSTEP_TIMEOUT).

While nothing goes on and some rank has waited for 60 s (--explain-after), it is said once where the others are.

The exit code is 0, or that of the rank that failed first (128 + signal where a signal killed it; 1 where it left
early with 0, or was stopped). A signal that ended the job gives 128 + its number (130 after Ctrl-C, 143 after SIGTERM), or 0 where
all ranks end with 0 then. Wrong usage is 2, a program that cannot run 126 or 127. It is 1 where the system refused
something, be it to take the ranks' output; a profile, timeline or report that cannot be written at the end is said and changes nothing.

  lockstep run -np 4 ./train --epochs 3
  lockstep run -np 2 -- python3 train.py
  lockstep run -np 8 -H server1:4,server2:4 ./train
  lockstep run --nnodes 2 --nproc-per-node 4 --rdzv-endpoint server1 --rdzv-id 17 ./train      on each of two hosts
)";

struct Meaningless {
  const char* option;
  bool takes_value;
  const char* why;
};
constexpr std::array meaningless = {
    Meaningless{"--monitor-interval", true, "the end of a rank is noticed at once"},
    Meaningless{"--start-method", true, "ranks are programs, started by exec"},
    Meaningless{"--use-env", false, "ranks always find their place in LOCAL_RANK"},
    Meaningless{"--gloo", false, "there is one way to start ranks"},
    Meaningless{"--mpi", false, "there is one way to start ranks; mpirun starts the same program, too"},
};

// CLI11 takes a value for a flag (--no-pin=5) as how often it is given.
void refuse_value_of_flag(const CLI::App& app, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const CLI::Option* option = name.size() < word.size() ? app.get_option_no_throw(name) : nullptr;
  if (option != nullptr && option->get_items_expected_max() == 0)
    lockstep::throw_invalid_argument(name + " takes no value");
}

// torchrun takes either.
void dashes_for_underscores(std::string& word) {
  if (!word.starts_with("--")) return;
  std::replace(word.begin(),
               word.begin() + static_cast<std::ptrdiff_t>(std::min(word.find('='), word.size())), '_', '-');
}

void two_dashes(std::string& word) {
  for (const std::string name : {"-hostfile", "-hosts", "-machinefile", "-wdir"}) {
    if (word == name || word.starts_with(name + "=")) word.insert(0, "-");
  }
}

/// What a variable that is not set leaves of an option would be lost without a word.
std::string is_named(const std::string& value) { return value.empty() ? "is empty" : ""; }

void describe_own(CLI::App& app, RunFlags& flags) {
  app.add_option("-n,--np,--num-proc", flags.ranks,
                 "Number of ranks (also -np) [one for each slot of the hosts]");
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
  app.add_option(
      "--tree-width", flags.tree_width,
      "So many hosts are reached from here, the others by way of them, which have to get to those by "
      "ssh, too [32]");
  app.add_option("--start-timeout", flags.start_timeout,
                 "For all hosts to be ready [30s; with --nnodes 10m]");
  app.add_flag("--dry-run", flags.dry_run, "Say what would be started, and where; start nothing");
  app.add_option("--max-restarts", flags.max_restarts,
                 "How often all ranks start again, from their checkpoint, after one has failed [0]");
  app.add_flag("--no-pin", flags.no_pin, "Leave all cores to all ranks");
  app.add_flag(
      "--mkl-avx512", flags.mkl_avx512,
      "MKL, which libtorch multiplies matrices by, takes AVX-512 on other makers' processors that have "
      "it, too: up to 2.3 times as fast as the AVX2 it takes there, and sums are rounded otherwise");
  app.add_flag("--no-prefix", flags.no_prefix, "Pass output on without \"[rank] \" before each line");
  app.add_option("--grace", flags.grace,
                 "What ranks have to end after SIGINT, SIGTERM, ... before SIGKILL [2s]");
  app.add_option("--record-dir", flags.record_dir,
                 "Where a job that failed leaves what its ranks did last, for `lockstep explain`; none: "
                 "nowhere [LOCKSTEP_RECORD_DIR, or lockstep-records]");
  app.add_option(
      "--profile", flags.profile,
      "Folder for a profile of each rank's calls, in mpitrace's layout; its summary is shown at the end "
      "[LOCKSTEP_PROFILE, or none]");
  app.add_option("--timeline", flags.timeline,
                 "File for what all ranks did when, for trace viewers: JSON, or Perfetto's own format where "
                 "it ends in .pftrace [LOCKSTEP_TIMELINE, HOROVOD_TIMELINE, or none]");
  app.add_option("--timeline-names", flags.timeline_names,
                 "Names of its events: lockstep, or horovod: those of Horovod's timeline, a process for each "
                 "tensor [LOCKSTEP_TIMELINE_NAMES, or lockstep]")
      ->check(CLI::IsMember({"lockstep", "horovod"}));
  app.add_option("--report", flags.report,
                 "Folder for a report: what the time went to, who was late, what to do about it; its verdict "
                 "is shown at the end [LOCKSTEP_REPORT, or none]");
  app.add_option(
      "--metrics", flags.metrics,
      "[ADDRESS:]PORT at which Prometheus finds all ranks' numbers while they run, at /metrics; port 0: "
      "a free one, which is said [LOCKSTEP_METRICS, or none; address 127.0.0.1]");
  app.add_option(
      "--explain-after", flags.explain_after,
      "When it is said which rank is where in a job in which nothing goes on and some rank waits; 0: "
      "never [LOCKSTEP_EXPLAIN_AFTER, or 60s]");
  app.add_option("--engine", flags.engine,
                 "What carries collectives between hosts: native (also called gloo and tcp), or nccl: the "
                 "same, where "
                 "GPUs' memory has to have an engine "
                 "[LOCKSTEP_ENGINE, or native]");
  app.add_flag(
      "--profile-all", flags.profile_all,
      "A file of each rank, in place of those with the least, the median and the most communication, and "
      "rank 0 [LOCKSTEP_PROFILE_ALL=1]");
  app.add_option(
      "--master-port", flags.master_port,
      "MASTER_PORT for programs that read it [a free one]; with --master-addr where launchers meet [29500]");
  app.add_flag("--nested", flags.nested, "Allow a run inside a rank of another run");
}

void describe_roles(CLI::App& app, RunFlags& flags) {
  const char* group = "Ranks with different tasks, and ranks that may die";
  const auto add_list = [&](const char* name, std::vector<std::string>& list, const char* what) {
    app.add_option(name, list, what)
        ->type_size(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(group);
  };
  add_list("--role", flags.roles,
           "NAME:RANKS: so many of the ranks have this task, which they find in ROLE_NAME; may be repeated. "
           "After the program \":\" and another --role NAME:RANKS begin another program. NAME alone: all "
           "ranks have it [default]");
  add_list("--tolerate", flags.tolerated,
           "ROLE or all: the job goes on when a rank of it dies; may be repeated");
  add_list("--restart", flags.restarted,
           "ROLE or all: a rank of it that dies is started again, alone, --max-restarts times [3]; may be "
           "repeated");
  app.add_option("--min-np", flags.least_ranks,
                 "The job goes on when ranks die, as long as so many are left; --max-restarts is for each of "
                 "them then")
      ->group(group);
  app.add_option("--max-np", flags.most_ranks,
                 "As many ranks as the hosts have slots, but no more than this, and at least -np")
      ->group(group);
  app.add_option("--host-discovery-script", flags.discovery_script,
                 "A command that prints HOST:SLOTS in lines, asked every second: the job begins with -np "
                 "ranks, and has up to "
                 "--max-np as slots come; ranks whose slots go away are ended, but for --min-np of them")
      ->group(group);
  app.add_option("--slots-per-host,--slots", flags.slots_per_host, "Of hosts of which it says none [1]")
      ->group(group);
}

void describe_torchrun(CLI::App& app, RunFlags& flags) {
  const char* group = "As torchrun has them (with - or _)";
  app.add_option("--nproc-per-node", flags.ranks_per_host,
                 "Ranks of each host: N, cpu (a rank a core), gpu (a rank a GPU), auto (gpu where there are "
                 "any, or cpu)")
      ->group(group);
  app.add_flag("--standalone", flags.standalone, "On this host alone")->group(group);
  app.add_option("--nnodes", flags.nodes,
                 "N or MIN:MAX: on how many hosts this command is started by you. MIN:MAX begins with those "
                 "that have come "
                 "30 s after MIN were there [1]")
      ->group(group);
  app.add_option("--node-rank", flags.node_rank, "Which of them this is [as they come]")->group(group);
  app.add_option("--rdzv-endpoint", flags.meeting, "Where they meet: HOST[:PORT] of one of them, which leads")
      ->group(group);
  app.add_option("--master-addr", flags.master_address, "The same, with --master-port")->group(group);
  app.add_option("--rdzv-backend", flags.meeting_backend, "static or c10d, which are the same here")
      ->group(group);
  app.add_option("--rdzv-id", flags.run_id, "Name of the run: others' launchers do not mix with it [none]")
      ->group(group);
  app.add_option(
         "--rdzv-conf", flags.meeting_settings,
         "is_host=BOOL, timeout=SECONDS (or join_timeout), last_call_timeout=SECONDS, separated by commas")
      ->group(group);
  app.add_flag("-m,--module", flags.module, "The program is a Python module: python3 -u -m PROGRAM")
      ->group(group);
  app.add_flag("--run-path", flags.run_path, "The program is a Python script: python3 -u PROGRAM")
      ->group(group);
  app.add_flag("--no-python", flags.no_python, "The program is started as it is, as without this")
      ->group(group);
  app.add_option("--log-dir", flags.log_dir,
                 "What ranks print also goes to DIR/RUN/attempt_N/RANK/stdout.log and stderr.log")
      ->group(group);
  app.add_option("-r,--redirects", flags.redirects,
                 "What goes to these files and is not shown: 0 nothing, 1 stdout, 2 stderr, 3 both; 0:3,1:1 "
                 "for single "
                 "local ranks")
      ->group(group);
  app.add_option("-t,--tee", flags.tee, "What goes to these files and is shown")->group(group);
  app.add_option("--local-ranks-filter", flags.local_ranks_filter,
                 "Show only what these local ranks print: 0,1")
      ->group(group);
}

void describe_horovodrun(CLI::App& app, RunFlags& flags) {
  const char* group = "As horovodrun has them";
  app.add_option("--output-filename", flags.output_filename,
                 "What ranks print also goes to DIR/rank.N/stdout and stderr")
      ->group(group);
  app.add_option("--timeline-filename", flags.timeline_filename, "The same as --timeline")->group(group);
  app.add_flag("--check-build", flags.check_build, "Say what this build can do")->group(group);
}

}  // namespace

void describe(CLI::App& app, RunFlags& flags) {
  command_line::set_usage(
      app, "Usage: lockstep run [-np N] [-H HOST:SLOTS,...] [options] [--] program [arguments...]\n");
  app.footer(run_after_help);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // see refuse_repetition()
  describe_own(app, flags);
  describe_roles(app, flags);
  describe_torchrun(app, flags);
  describe_horovodrun(app, flags);
  for (const Meaningless& one : meaningless) {
    CLI::Option* option = one.takes_value ? app.add_option(one.option) : app.add_flag(one.option);
    option->description(std::string("Means nothing here: ") + one.why)->group("Without a meaning here");
  }
  for (CLI::Option* option :
       app.get_options([](const CLI::Option* one) { return one->get_items_expected_max() > 0; }))
    option->check(is_named);
}

std::string say_what_means_nothing(const CLI::App& app) {
  std::string text;
  for (const Meaningless& one : meaningless) {
    if (app.count(one.option) > 0)
      text += (text.empty() ? "" : "; ") + std::string(one.option) + " (" + one.why + ")";
  }
  return text.empty() ? "" : "without a meaning here: " + text;
}

std::size_t end_of_options(const CLI::App& app, std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string& word = arguments[i];
    if (word == "--" || word.size() < 2 || word.front() != '-') return i;
    np_as_long_option(word);
    two_dashes(word);
    dashes_for_underscores(word);
    refuse_value_of_flag(app, word);
    const CLI::Option* option = app.get_option_no_throw(word);  // nullptr also for --name=value
    if (option != nullptr && option->get_items_expected_min() > 0) ++i;
  }
  return arguments.size();
}

// An option that is given again is a mistake in a script as a rule, and either value may be the one meant.
void refuse_repetition(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const bool may_repeat = option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
    if (option->get_items_expected_max() == 0 || may_repeat || option->count() < 2) continue;
    const std::string name = option->get_name();
    lockstep::throw_invalid_argument((name == "--np" ? "-np" : name) + " is given more than once");
  }
}
