#include "tests/support/hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "lockstep/base/process_status.h"
#include "tests/support/process.h"

namespace lockstep::testing {
namespace {

/// Made by a thread that moves into it and ends; the descriptor keeps it.
UniqueFd make_network(std::string& why_not) {
  UniqueFd network;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) == 0) network.reset(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!network) why_not = std::string("no network namespace: ") + std::strerror(errno);
  }).join();
  return network;
}

bool configure(int network, const std::string& script, std::string& why_not) {
  const Ending ending = run({.words = {"/bin/sh", "-ec", script}, .network = network});
  if (ending.exit_code != 0) why_not = "cannot set a network namespace up: " + ending.err;
  return ending.exit_code == 0;
}

std::string path_of(int network) {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(network);
}

}  // namespace

std::optional<Hosts> Hosts::make(int count, std::string& why_not) {
  Hosts hosts;
  hosts.count_ = count;
  for (int i = 0; i < (count > 2 ? count + 1 : count); ++i) {
    hosts.networks_.push_back(make_network(why_not));
    if (!hosts.networks_.back()) return std::nullopt;
  }
  std::string switch_script = "ip link add switch type bridge; ip link set switch up";
  for (int host = 0; count > 2 && host < count; ++host) {
    const std::string port = "port" + std::to_string(host);
    switch_script += "; ip link add " + port + " type veth peer name cable netns " +
                     path_of(hosts.network(host)) + "; ip link set " + port + " master switch; ip link set " +
                     port + " up";
  }
  const std::string cable = "ip link add cable type veth peer name cable netns " + path_of(hosts.network(1));
  if (!configure(hosts.networks_[count > 2 ? static_cast<std::size_t>(count) : 0].get(),
                 count > 2 ? switch_script : cable, why_not)) {
    return std::nullopt;
  }
  for (int host = 0; host < count; ++host) {
    const std::string up =
        "ip address add " + hosts.address(host) + "/24 dev cable; ip link set cable up; ip link set lo up";
    if (!configure(hosts.network(host), up, why_not)) return std::nullopt;
  }
  // The kernel tells that cables carry a while after both ends are up; until then libfabric does not take them.
  const std::string carries =
      "for turn in $(seq 300); do ip link show cable | grep -q 'state UP' && exit 0; sleep 0.01; done; exit "
      "1";
  for (int host = 0; host < count; ++host) {
    if (!configure(hosts.network(host), carries, why_not)) return std::nullopt;
  }
  return hosts;
}

std::vector<pid_t> Hosts::processes(int host) const {
  struct stat wanted {};
  std::vector<pid_t> found;
  if (::fstat(network(host), &wanted) != 0) return found;
  for (const pid_t pid : base::numbers_in("/proc")) {
    struct stat status {};
    const std::string path = "/proc/" + std::to_string(pid) + "/ns/net";
    if (::stat(path.c_str(), &status) == 0 && status.st_ino == wanted.st_ino) found.push_back(pid);
  }
  return found;
}

}  // namespace lockstep::testing
