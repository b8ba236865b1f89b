// A Slurm of a test's own: a controller on the first of its hosts and a node on each, "n1", "n2" and so on.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/hosts.h"
#include "tests/support/process.h"

namespace lockstep::testing {

class SlurmCluster {
 public:
  /// Borrows `hosts`. Files go into `folder`, which has to exist. nullopt where `script/bootstrap --peers slurm` has not been run, or it does not
  /// start; `why_not` then says so.
  static std::optional<SlurmCluster> start(const Hosts& hosts, const std::filesystem::path& folder,
                                           std::string& why_not);

  /// A command of Slurm's (srun, sbatch, salloc) with its arguments, as it can be run: on the first host. It, and what it starts,
  /// knows the nodes by their names.
  std::vector<std::string> command(const std::vector<std::string>& words) const;

 private:
  SlurmCluster(const Hosts& hosts, std::filesystem::path folder, std::filesystem::path peer)
      : folder_(std::move(folder)), peer_(std::move(peer)), steps_(new Steps{hosts}) {}
  void write_configuration(const Hosts& hosts) const;
  bool is_ready(const Hosts& hosts) const;

  /// What looks after a job's steps on the nodes outlives a slurmd that is killed.
  struct Steps {
    const Hosts& hosts;
    ~Steps();
  };

  std::filesystem::path folder_, peer_;
  std::unique_ptr<Steps> steps_;  // after daemons_, which start them
  std::vector<Process> daemons_;
};

}  // namespace lockstep::testing
