#include "tests/support/slurm_cluster.h"

#include <signal.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "lockstep/base/deadline.h"
#include "lockstep/base/words.h"
#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

/// Without munge, cgroups and accounting, which need services of the system.
constexpr const char* configuration =
    "ClusterName=test\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/none\nCredType=cred/none\n"
    "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n"
    "AccountingStorageType=accounting_storage/none\nSelectType=select/cons_tres\n"
    "SelectTypeParameters=CR_Core_Memory\nMpiDefault=none\nReturnToService=2\nKillWait=2\n";

}  // namespace

std::optional<SlurmCluster> SlurmCluster::start(const Hosts& hosts, const fs::path& folder,
                                                std::string& why_not) {
  const auto peer = peer_file("slurm", "usr");
  if (!peer) {
    why_not = "Slurm is not installed: script/bootstrap --peers slurm";
    return std::nullopt;
  }
  SlurmCluster cluster(hosts, folder, *peer);
  const fs::path pmix =
      "lib/x86_64-linux-gnu/pmix2/lib";  // where Debian's Slurm looks for a name of libpmix-dev
  for (const fs::path& name : {fs::path("links/sbin"), fs::path("state"), "links" / pmix})
    fs::create_directories(folder / name);
  fs::create_symlink("libpmix.so.2", folder / "links" / pmix / "libpmix.so");
  for (const std::string daemon : {"slurmctld", "slurmd", "slurmstepd"})
    fs::create_symlink(daemon + "-wlm", folder / "links/sbin" / daemon);
  cluster.write_configuration(hosts);
  std::ofstream names(folder / "hosts");
  names << "127.0.0.1 localhost\n";
  for (int host = 0; host < hosts.count(); ++host) names << hosts.address(host) << " n" << host + 1 << "\n";
  names.close();
  cluster.daemons_.emplace_back(
      Command{.words = cluster.command({"slurmctld", "-D"}), .network = hosts.network(0)});
  for (int host = 0; host < hosts.count(); ++host) {
    const std::string node = "n" + std::to_string(host + 1);
    fs::create_directories(folder / node / "pmix");
    fs::copy_file(folder / "slurm.conf", folder / node / "slurm.conf");
    std::ofstream(folder / node / "mpi.conf")
        << "PMIxCliTmpDirBase=" << (folder / node / "pmix").string() << "\n";
    const std::vector<std::string> words = {
        "env", "SLURM_CONF=" + (folder / node / "slurm.conf").string(), "slurmd", "-D", "-N", node};
    cluster.daemons_.emplace_back(Command{.words = cluster.command(words), .network = hosts.network(host)});
  }
  for (const Deadline deadline = Deadline::after(std::chrono::seconds(25)); !cluster.is_ready(hosts);) {
    if (deadline.expired()) {
      why_not = "Slurm's nodes do not come up";
      return std::nullopt;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return cluster;
}

SlurmCluster::Steps::~Steps() {
  for (int host = 0; host < hosts.count(); ++host) {
    for (const pid_t pid : hosts.processes(host)) {
      if (text_in("/proc/" + std::to_string(pid) + "/comm") == "slurmstepd\n") (void)::kill(pid, SIGKILL);
    }
  }
}

void SlurmCluster::write_configuration(const Hosts& hosts) const {
  std::ofstream file(folder_ / "slurm.conf");
  file << configuration << "SlurmctldHost=" << base::host_name() << "(" << hosts.address(0) << ")\n";
  for (const char* line : {"StateSaveLocation=/state", "SlurmdSpoolDir=/%n", "SlurmctldPidFile=/ctld.pid",
                           "SlurmdPidFile=/%n.pid", "SlurmctldLogFile=/ctld.log", "SlurmdLogFile=/%n.log"}) {
    const std::string text = line;
    const std::size_t value = text.find('=') + 1;
    file << text.substr(0, value) << folder_.string() << text.substr(value) << "\n";
  }
  for (int host = 0; host < hosts.count(); ++host) {
    file << "NodeName=n" << host + 1 << " NodeHostname=" << base::host_name()
         << " NodeAddr=" << hosts.address(host) << " CPUs=" << std::thread::hardware_concurrency()
         << " RealMemory=500\n";
  }
  file << "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n";
}

// Its programs look for one another below /usr, where they are in a view of the file system of their own.
std::vector<std::string> SlurmCluster::command(const std::vector<std::string>& words) const {
  const std::string script = "mount -t overlay overlay -o lowerdir=" + (folder_ / "links").string() + ":" +
                             peer_.string() + ":/usr /usr; mount --bind " + (folder_ / "hosts").string() +
                             " /etc/hosts; export SLURM_CONF=" + (folder_ / "slurm.conf").string() +
                             "; exec \"$@\"";
  std::vector<std::string> all = {"unshare", "--mount", "/bin/sh", "-ec", script, "sh"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

bool SlurmCluster::is_ready(const Hosts& hosts) const {
  const Ending ending =
      run({.words = command({"timeout", "5", "sinfo", "-h", "-N", "-o", "%T"}), .network = hosts.network(0)});
  std::string expected;
  for (int host = 0; host < hosts.count(); ++host) expected += "idle\n";
  return ending.out == expected;
}

}  // namespace lockstep::testing
