// The command `lockstep`: finds the subcommand and hands over. Each subcommand has a file of its own.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "agent.h"
#include "algorithms.h"
#include "bench.h"
#include "doctor/doctor.h"
#include "explain.h"
#include "fetch.h"
#include "pipelines.h"
#include "profile.h"
#include "report.h"
#include "run.h"
#include "simulate.h"
#include "top.h"

namespace {

struct Subcommand {
  const char* name;
  const char* purpose;
  std::function<int(const std::vector<std::string>&)> start;
};

const std::vector<Subcommand>& subcommands() {
  static const std::vector<Subcommand> all = {
      {"run", "start a program on several ranks, on this host or on several", run_command},
      {"doctor", "say what this machine has, and what training would miss", doctor_command},
      {"algorithms", "draw what the collectives do, and count what it costs", algorithms_command},
      {"pipelines", "draw the schedules of pipelines, and say how long ranks have nothing to do",
       pipelines_command},
      {"bench", "measure the collectives on this machine, and write the table they are chosen by",
       bench_command},
      {"simulate", "say how long collectives take on a cluster that need not be there", simulate_command},
      {"fetch", "bring a public data set (MNIST, Fashion-MNIST, CIFAR-10) into a folder", fetch_command},
      {"agent", "", agent_command},  // started by run
      {"profile", "run an MPI program, and say which calls of MPI took how long", profile_command},
      {"report", "say what a run's time went to, who was late, and what changed between two", report_command},
      {"top", "watch what the ranks of a running job do, how long their steps take, and who comes late",
       top_command},
      {"explain", "say which rank of a failed or hanging job is where, and why", explain_command},
  };
  return all;
}

std::string help() {
  std::string text =
      "Lockstep " LOCKSTEP_VERSION ": distributed training\nUsage: lockstep SUBCOMMAND ...\n\n";
  std::size_t widest = 0;
  for (const Subcommand& subcommand : subcommands())
    widest = std::max(widest, std::string_view(subcommand.name).size());
  for (const Subcommand& subcommand : subcommands()) {
    if (*subcommand.purpose == '\0') continue;
    std::string name = subcommand.name;
    name.resize(widest, ' ');
    text += "  " + name + "   " + subcommand.purpose + "\n";
  }
  return text + "\n`lockstep SUBCOMMAND --help` says more; `lockstep --version` which version this is.\n";
}

/// `code`, but 1 where stdout has not taken all that was written to it, which is said.
int with_output_written(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const std::string why = errno == 0 ? "" : ": " + std::generic_category().message(errno);
  (void)std::fprintf(stderr, "lockstep: stdout cannot be written%s\n", why.c_str());
  return code == 0 ? 1 : code;
}

int complain(const std::string& text) {
  (void)std::fprintf(stderr, "lockstep: %s\nSee `lockstep --help`.\n", text.c_str());
  return 2;
}

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> arguments(words + 1, words + count);
  if (arguments.empty()) return complain("which subcommand?");
  const std::string& word = arguments.front();
  if (word == "--help" || word == "-h") {
    (void)std::fputs(help().c_str(), stdout);
    return with_output_written(0);
  }
  if (word == "--version") {
    (void)std::puts("lockstep " LOCKSTEP_VERSION);
    return with_output_written(0);
  }
  const auto found = std::find_if(subcommands().begin(), subcommands().end(),
                                  [&](const Subcommand& subcommand) { return subcommand.name == word; });
  if (found == subcommands().end()) return complain("there is no subcommand " + word);
  return with_output_written(found->start({arguments.begin() + 1, arguments.end()}));
}
