// An sshd on each of a test's hosts, with keys of the test's own: what a user of a cluster has.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/hosts.h"
#include "tests/support/process.h"

namespace lockstep::testing {

class SshServers {
 public:
  /// Files go into `folder`, which has to exist. nullopt where `script/bootstrap --peers openssh` has not been run; `why_not`
  /// then says so.
  static std::optional<SshServers> start(const Hosts& hosts, const std::filesystem::path& folder,
                                         std::string& why_not);

  /// For a bind mount over /etc/hosts: "server1", "server2" and so on, and this machine's own name. The servers' sessions know them.
  std::filesystem::path names() const { return folder_ / "names"; }
  /// For LOCKSTEP_SSH: finds the key, and accepts the hosts'.
  std::string client() const { return "ssh -F " + (folder_ / "ssh_config").string(); }
  /// One that the servers do not accept.
  std::string client_with_another_key() const { return "ssh -F " + (folder_ / "other_config").string(); }
  /// Processes on `host` besides its sshd, after those that are about to end have had a moment.
  std::vector<pid_t> left_behind(const Hosts& hosts, int host) const;

 private:
  explicit SshServers(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path folder_;
  std::vector<Process> servers_;
};

}  // namespace lockstep::testing
