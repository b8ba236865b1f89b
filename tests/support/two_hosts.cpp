#include "tests/support/two_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

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

}  // namespace

std::optional<TwoHosts> TwoHosts::make(std::string& why_not) {
  TwoHosts hosts;
  for (UniqueFd& network : hosts.networks_) {
    network = make_network(why_not);
    if (!network) return std::nullopt;
  }
  const std::string other_end =
      "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(hosts.network(1));
  const auto up = [&](int host) {
    return "ip address add " + hosts.address(host) + "/24 dev cable; ip link set cable up; ip link set lo up";
  };
  const bool made = configure(hosts.network(0),
                              "ip link add cable type veth peer name cable netns " + other_end, why_not) &&
                    configure(hosts.network(0), up(0), why_not) &&
                    configure(hosts.network(1), up(1), why_not);
  if (!made) return std::nullopt;
  return hosts;
}

}  // namespace lockstep::testing
