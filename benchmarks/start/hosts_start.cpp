// How long a job on several hosts takes to its first barrier, beside as many bare `ssh HOST true` at once: what starting costs
// above getting there at all. The hosts are network namespaces with a real sshd each; benchmarks/start/run starts this.
//
//   hosts_start HOSTS RANKS_OF_EACH ROUNDS      prints {"bare_ms": [...], "lockstep_ms": [...]}, or {"why_not": "..."}
#include <stdlib.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/hosts.h"
#include "tests/support/process.h"
#include "tests/support/ssh_servers.h"

namespace {

using lockstep::testing::Command;
using lockstep::testing::Hosts;
using lockstep::testing::SshServers;

std::int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

lockstep::testing::Ending run_well(const Command& command) {
  auto ending = lockstep::testing::run(command);
  if (ending.exit_code != 0) throw std::runtime_error(command.words.front() + ": " + ending.err);
  return ending;
}

class Contest {
 public:
  Contest(const Hosts& hosts, const SshServers& servers, int ranks)
      : network_(hosts.network(0)), client_(servers.client()) {
    for (int host = 0; host < hosts.count(); ++host) {
      at_once_ += client_ + " " + hosts.address(host) + " true & ";
      list_ += (host == 0 ? "" : ",") + hosts.address(host) + ":" + std::to_string(ranks);
    }
  }

  double bare_ms() const {
    const std::int64_t begin = now_ns();
    run_well({.words = {"/bin/sh", "-c", at_once_ + "wait"}, .network = network_});
    return static_cast<double>(now_ns() - begin) / 1e6;
  }
  double lockstep_ms() const {
    using lockstep::testing::program;
    const std::int64_t begin = now_ns();
    const auto ending =
        run_well({.words = {program("lockstep"), "run", "--no-prefix", "-H", list_, program("start_step")},
                  .variables = {{"LOCKSTEP_SSH", client_}},
                  .network = network_});
    const auto passed = nlohmann::json::parse(ending.out).at("passed_ns").get<std::int64_t>();
    return static_cast<double>(passed - begin) / 1e6;
  }

 private:
  int network_;
  std::string client_;
  std::string at_once_;
  std::string list_;
};

nlohmann::json measure(int hosts_wanted, int ranks, int rounds, const std::filesystem::path& folder) {
  std::string why_not;
  const auto hosts = Hosts::make(hosts_wanted, why_not);
  const auto servers = hosts ? SshServers::start(*hosts, folder, why_not) : std::nullopt;
  if (!servers) return {{"why_not", why_not}};
  const Contest contest(*hosts, *servers, ranks);
  nlohmann::json made = {{"bare_ms", nlohmann::json::array()}, {"lockstep_ms", nlohmann::json::array()}};
  for (int round = -1; round < rounds;
       ++round) {  // the first is not counted: keys are noted, files come from the disk
    const double bare = contest.bare_ms(), ours = contest.lockstep_ms();
    if (round < 0) continue;
    made["bare_ms"].push_back(bare);
    made["lockstep_ms"].push_back(ours);
  }
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    (void)std::fprintf(stderr, "usage: hosts_start HOSTS RANKS_OF_EACH ROUNDS\n");
    return 2;
  }
  std::string folder = (std::filesystem::temp_directory_path() / "lockstep-start-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  int exit_code = 0;
  try {
    std::printf("%s\n",
                measure(std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[3]), folder).dump().c_str());
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "hosts_start: %s\n", error.what());
    exit_code = 1;
  }
  std::filesystem::remove_all(folder);
  return exit_code;
}
