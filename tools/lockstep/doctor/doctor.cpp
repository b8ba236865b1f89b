#include "doctor.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>

#include "command_line.h"
#include "examine.h"
#include "lockstep/topology/topology.h"
#include "named_hosts.h"
#include "report.h"

namespace {

constexpr const char* doctor_after_help = R"(
Two ranks are started for a moment, and memory is measured for a fifth of a second; nothing is changed. Hosts of -H, of
--hostfile, or of the allocation are asked for an agent, as `lockstep run` does it.

The exit code is 0, or 1 where training would not run here, or not on one of these hosts; wrong usage is 2.

  lockstep doctor
  lockstep doctor -H server1,server2 --json
)";

struct DoctorFlags {
  std::string hosts;
  std::string hostfile;
  std::string shell;
  std::string agent;
  bool json = false;
};

void describe(CLI::App& app, DoctorFlags& flags) {
  app.footer(doctor_after_help);
  app.add_option("-H,--host,--hosts", flags.hosts, "Hosts to ask: HOST,...");
  app.add_option("--hostfile", flags.hostfile, "The same from a file");
  app.add_option("--ssh", flags.shell,
                 "Command that gets to a host, with its options [LOCKSTEP_SSH, or ssh]");
  app.add_option("--agent", flags.agent, "Where `lockstep` is on the other hosts [the same path as here]");
  app.add_flag("--json", flags.json, "For programs");
}

}  // namespace

int doctor_command(const std::vector<std::string>& arguments) {
  DoctorFlags flags;
  CLI::App app("Says of this machine what training needs, and what would slow it.");
  command_line::set_usage(app, "Usage: lockstep doctor [-H HOST,...] [--json]\n");
  describe(app, flags);
  try {
    command_line::parse(app, arguments);
    const NamedHosts named = named_hosts(flags.hosts, flags.hostfile);
    lockstep::launch::RemoteOptions remote{.shell = remote_shell(flags.shell), .agent = flags.agent};
    remote.by_srun = named.by_slurm && remote.shell.empty();
    doctor::Report report;
    doctor::try_ranks(report);  // before there are threads
    doctor::examine_cores(report);
    doctor::examine_memory(report);
    doctor::examine_limits(report);
    doctor::examine_network(report);
    doctor::examine_devices(report);
    doctor::examine_software(report);
    doctor::examine_collectives(report, std::max(2, lockstep::topology::available_cores()));
    doctor::examine_hosts(report, named.hosts, remote);
    const int exit_code = command_line::print(flags.json ? report.json() : report.text());
    return report.trains() ? exit_code : 1;
  } catch (...) {
    return command_line::answer(app, "doctor");
  }
}
