// The real program, under each launcher, on one host and on several: the parameters in the end are those of one reference, bit for
// bit: the same algorithm averages, and each rank computes with one thread.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include "small_digits.h"
#include "tests/support/job_test.h"
#include "tests/support/slurm_cluster.h"
#include "tests/support/ssh_servers.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

enum class By { lockstep_run, nodes, mpich, impi, openmpi, srun, sbatch, torchrun, tf_config };

struct Way {
  By by;
  const char* name;
  int hosts;
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name << " on " << way.hosts; }

/// Two ranks on one host or two, three on three.
class DigitsUnder : public JobTest, public ::testing::WithParamInterface<Way> {
 protected:
  void SetUp() override {
    JobTest::SetUp();
    write_digits(folder(), 10);
  }
  void TearDown() override {
    slurm_.reset();
    ssh_.reset();
    JobTest::TearDown();
  }

  int ranks() const { return std::max(2, GetParam().hosts); }
  int hosts_needed() const {
    const bool is_slurm = GetParam().by == By::srun || GetParam().by == By::sbatch;
    return is_slurm ? std::max(2, GetParam().hosts) : GetParam().hosts;
  }
  int network() const { return hosts_needed() > 1 ? hosts().network(0) : -1; }
  fs::path checkpoint(const std::string& name) const { return folder() / (name + ".ckpt"); }
  std::vector<std::string> digits(const std::string& name) const {
    return {program("digits"), "--data", folder(),       "--epochs",      "2",
            "--batch_size",    "8",      "--checkpoint", checkpoint(name)};
  }
  Variables variables(const Variables& more = {}) const {
    Variables all = {{"LOCKSTEP_ALGORITHM", "all_reduce=ring"},
                     {"OMP_NUM_THREADS", "1"},
                     {"LOCKSTEP_INIT_TIMEOUT", "60s"},
                     {"TMPDIR", folder()},
                     {"TORCHINDUCTOR_CACHE_DIR", folder() / "inductor"}};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::vector<std::string> joined(std::vector<std::string> words,
                                         const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string host_list(const std::string& slots) const {
    std::string text;
    for (int host = 0; host < GetParam().hosts; ++host)
      text += (host == 0 ? "" : ",") + hosts().address(host) + slots;
    return text;
  }
  /// A command that gets to other hosts, in one word.
  std::string ssh() {
    std::string why_not;
    ssh_ = SshServers::start(hosts(), folder(), why_not);
    if (!ssh_) return why_not_ = why_not, "";
    const fs::path path = folder() / "ssh";
    std::ofstream(path) << "#!/bin/sh\nexec " << ssh_->client() << " \"$@\"\n";
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }
  std::string launcher_of(const std::string& peer, const std::string& name) {
    const auto found = peer_program(peer, name);
    if (!found) why_not_ = peer + " is not installed: script/bootstrap --peers " + peer;
    return found ? found->string() : "";
  }

  std::vector<Process> start_under();
  std::vector<Process> start_reference();
  Process start_mpi(const std::string& peer);
  Process start_slurm();
  std::vector<Process> start_one_each(const std::function<Process(int)>& start_one) const {
    std::vector<Process> all;
    for (int i = 0; i < ranks(); ++i) all.push_back(start_one(i));
    return all;
  }

  std::string why_not_;  // this way is not possible here

 private:
  std::optional<SshServers> ssh_;
  std::optional<SlurmCluster> slurm_;
};

Process DigitsUnder::start_mpi(const std::string& peer) {
  const std::string launcher = launcher_of(peer, "mpiexec");
  const std::string count = std::to_string(ranks());
  std::vector<std::string> words = {launcher};
  if (peer == "openmpi") {
    words = joined(words, {"--allow-run-as-root", "--oversubscribe", "-x", "LOCKSTEP_ALGORITHM", "-x",
                           "OMP_NUM_THREADS"});
    if (GetParam().hosts > 1)
      words = joined(words,
                     {"--prtemca", "plm_ssh_agent", ssh(), "-H", host_list(":1"), "--map-by", "ppr:1:node"});
  } else if (GetParam().hosts > 1) {
    words =
        joined(words, {"-launcher", "ssh", "-launcher-exec", ssh(), "-hosts", host_list(""), "-ppn", "1"});
  }
  if (!why_not_.empty()) words = {"true"};
  return start(joined(joined(words, {"-n", count}), digits("under")), variables(), network());
}

Process DigitsUnder::start_slurm() {
  fs::create_directory(folder() / "slurm");
  slurm_ = SlurmCluster::start(hosts(), folder() / "slurm", why_not_);
  if (!slurm_) return start({"true"});
  const std::string nodes = std::to_string(GetParam().hosts), count = std::to_string(ranks());
  if (GetParam().by == By::srun) {
    const auto words = joined({"srun", "--mpi=pmi2", "-N" + nodes, "-n" + count}, digits("under"));
    return start(slurm_->command(words), variables(), network());
  }
  const fs::path script = folder() / "job.sh";
  std::ofstream file(script);
  file << "#!/bin/sh\n#SBATCH --nodes=" << nodes << " --ntasks=" << count << "\n"
       << program("lockstep") << " run";
  for (const std::string& word : digits("under")) file << " '" << word << "'";
  file << "\n";
  file.close();
  return start(slurm_->command({"sbatch", "--wait", "-o", folder() / "out", script}), variables(), network());
}

std::vector<Process> DigitsUnder::start_under() {
  const std::string count = std::to_string(ranks());
  const std::string first = GetParam().hosts > 1 ? hosts().address(0) : "127.0.0.1";
  const Variables secret = {{"LOCKSTEP_SECRET_FILE", secret_file("known to all hosts")}};
  std::vector<Process> all;
  switch (GetParam().by) {
    case By::lockstep_run:
      all.push_back(start(joined({program("lockstep"), "run", "-H", host_list(":1")}, digits("under")),
                          variables({{"LOCKSTEP_SSH", ssh()}}), network()));
      return all;
    case By::nodes:
      return start_one_each([&](int node) {
        return start(
            joined({program("lockstep"), "run", "--nnodes", count, "--node-rank", std::to_string(node),
                    "--master-addr", first, "--master-port", std::to_string(port())},
                   digits("under")),
            variables(secret), hosts().network(node));
      });
    case By::mpich: all.push_back(start_mpi("mpich")); return all;
    case By::impi: all.push_back(start_mpi("impi")); return all;
    case By::openmpi: all.push_back(start_mpi("openmpi")); return all;
    case By::srun:
    case By::sbatch: all.push_back(start_slurm()); return all;
    case By::torchrun: {
      const std::string torchrun = launcher_of("torch", "torchrun");
      if (!why_not_.empty()) return all;
      if (GetParam().hosts == 1) {
        all.push_back(start(joined({torchrun, "--standalone", "--log-dir", folder() / "logs",
                                    "--nproc-per-node", count, "--no-python"},
                                   digits("under")),
                            variables()));
        return all;
      }
      return start_one_each([&](int node) {
        return start(joined({torchrun, "--log-dir", folder() / "logs", "--nnodes", count, "--node-rank",
                             std::to_string(node), "--nproc-per-node", "1", "--master-addr", first,
                             "--master-port", std::to_string(port()), "--no-python"},
                            digits("under")),
                     variables(secret), hosts().network(node));
      });
    }
    case By::tf_config: break;
  }
  return start_one_each([&](int index) {
    std::string workers;
    for (int i = 0; i < ranks(); ++i) {
      const std::string address = GetParam().hosts > 1 ? hosts().address(i) : first;
      workers += (i == 0 ? "\"" : ", \"") + address + ":" + std::to_string(port() + i) + "\"";
    }
    Variables config = {
        {"TF_CONFIG", "{\"cluster\": {\"worker\": [" + workers +
                          "]}, \"task\": {\"type\": \"worker\", \"index\": " + std::to_string(index) + "}}"}};
    if (GetParam().hosts > 1) config.insert(config.end(), secret.begin(), secret.end());
    return start(digits("under"), variables(config), GetParam().hosts > 1 ? hosts().network(index) : -1);
  });
}

/// Two ranks add up in one way only, wherever they are; three do it as between hosts.
std::vector<Process> DigitsUnder::start_reference() {
  std::vector<Process> all;
  if (ranks() == 2) {
    all.push_back(start(joined({program("lockstep"), "run", "-np", "2"}, digits("reference")), variables()));
    return all;
  }
  return start_one_each([&](int rank) {
    const Variables place = by_hand(
        rank, ranks(),
        {{"MASTER_ADDR", hosts().address(0)}, {"LOCKSTEP_SECRET_FILE", secret_file("known to all hosts")}});
    return start(digits("reference"), variables(place), hosts().network(rank));
  });
}

TEST_P(DigitsUnder, IsTheReferenceBitForBit) {
  if (hosts_needed() > 1) REQUIRE_HOSTS(hosts_needed());
  std::vector<Process> started = start_under();
  std::vector<Ending> endings = finish(started);
  if (!why_not_.empty()) GTEST_SKIP() << why_not_;
  for (const Ending& ending : endings)
    ASSERT_EQ(ending.exit_code, 0) << ending.out << ending.err << text_in(folder() / "out");

  std::vector<Process> reference = start_reference();
  for (const Ending& ending : finish(reference)) ASSERT_EQ(ending.exit_code, 0) << ending.err;
  const std::string expected = parameters_in(checkpoint("reference")),
                    found = parameters_in(checkpoint("under"));
  EXPECT_GT(expected.size(), 100'000U);
  EXPECT_TRUE(found == expected) << "of " << expected.size() << " bytes some differ";
}

std::vector<Way> all_ways() {
  std::vector<Way> ways;
  for (const int hosts : {1, 2, 3}) {
    if (hosts > 1) ways.push_back({By::lockstep_run, "LockstepRun", hosts});
    if (hosts > 1) ways.push_back({By::nodes, "LockstepRunOnEach", hosts});
    ways.push_back({By::mpich, "Mpich", hosts});
    if (hosts < 3) ways.push_back({By::impi, "IntelMpi", hosts});
    ways.push_back({By::openmpi, "OpenMpi", hosts});
    ways.push_back({By::srun, "Srun", hosts});
    if (hosts < 3) ways.push_back({By::sbatch, "Sbatch", hosts});
    if (hosts < 3) ways.push_back({By::torchrun, "Torchrun", hosts});
    ways.push_back({By::tf_config, "TfConfig", hosts});
  }
  return ways;
}

INSTANTIATE_TEST_SUITE_P(By, DigitsUnder, ::testing::ValuesIn(all_ways()), [](const auto& info) {
  return std::string(info.param.name) + "On" + std::to_string(info.param.hosts);
});

}  // namespace
}  // namespace lockstep::testing
