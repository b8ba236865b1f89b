#include "tests/support/ssh_servers.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "lockstep/base/deadline.h"
#include "lockstep/base/words.h"
#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

std::string client_config(const fs::path& folder, const std::string& key) {
  return "Host *\n  IdentityFile " + (folder / key).string() +
         "\n  IdentitiesOnly yes\n  UserKnownHostsFile " + (folder / "known_hosts").string() +
         "\n  StrictHostKeyChecking accept-new\n  LogLevel ERROR\n";
}

}  // namespace

std::optional<SshServers> SshServers::start(const Hosts& hosts, const fs::path& folder,
                                            std::string& why_not) {
  const auto peer = peer_file("openssh", "usr/sbin/sshd");
  if (!peer) {
    why_not = "sshd is not installed: script/bootstrap --peers openssh";
    return std::nullopt;
  }
  for (const char* key : {"host_key", "user_key", "other_key"}) {
    const Ending made =
        run({.words = {"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", (folder / key).string()}});
    if (made.exit_code != 0) {
      why_not = made.err;
      return std::nullopt;
    }
  }
  write(folder / "ssh_config", client_config(folder, "user_key"));
  write(folder / "other_config", client_config(folder, "other_key"));
  write(folder / "sshd_config",
        "ListenAddress 0.0.0.0\nListenAddress ::\nHostKey " + (folder / "host_key").string() +
            "\nAuthorizedKeysFile " + (folder / "user_key.pub").string() +
            "\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 100\n");
  std::string names = "127.0.0.1 localhost " + base::host_name() + "\n";
  for (int host = 0; host < hosts.count(); ++host)
    names += hosts.address(host) + " server" + std::to_string(host + 1) + "\n";
  write(folder / "names", names);
  // In a view of the file system of its own, where the folder and the user are that a distribution makes for it.
  const std::string script =
      "mount --bind " + (folder / "names").string() +
      " /etc/hosts; mount -t tmpfs none /run; mkdir -p /run/sshd; grep -v ^sshd: /etc/passwd >/run/passwd; "
      "echo sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin >>/run/passwd; mount --bind /run/passwd "
      "/etc/passwd; "
      "exec " +
      peer->string() + " -D -e -f " + (folder / "sshd_config").string();
  const fs::path root = peer->parent_path().parent_path().parent_path();
  const std::string libraries =
      (root / "lib/x86_64-linux-gnu").string() + ":" + (root / "usr/lib/x86_64-linux-gnu").string();
  SshServers servers(folder);
  for (int host = 0; host < hosts.count(); ++host) {
    servers.servers_.emplace_back(Command{.words = {"unshare", "--mount", "/bin/sh", "-ec", script},
                                          .variables = {{"LD_LIBRARY_PATH", libraries}},
                                          .network = hosts.network(host)});
    servers.servers_.back().await_err("Server listening");
  }
  return servers;
}

std::vector<pid_t> SshServers::left_behind(const Hosts& hosts, int host) const {
  const Deadline deadline = Deadline::after(std::chrono::seconds(3));
  while (true) {
    std::vector<pid_t> left = hosts.processes(host);
    std::erase(left, servers_.at(static_cast<std::size_t>(host)).pid());
    if (left.empty() || deadline.expired()) return left;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace lockstep::testing
