// The commands of docs/running.md, as they stand there: each is run with the real launchers, or said why it cannot be here. What
// docs have and this file does not know is a failure. server1 and server2 are namespaces; ./train and its like a program that meets
// the others.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/support/shell_blocks.h"
#include "tests/support/slurm_cluster.h"
#include "tests/support/ssh_job_test.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// How the blocks that begin like this are run.
struct How {
  enum class By { shell, each_host, sbatch, pbs, cobalt, others, spawning, nowhere } by;
  const char* begins;
  const char* why = "";
};

constexpr How known[] = {
    {How::By::shell, "lockstep run -np 4 ./train --epochs 3"},
    {How::By::shell, "lockstep run -np 8 -H server1:4,server2:4 ./train"},
    {How::By::each_host, "head -c 32 /dev/urandom > secret"},
    {How::By::sbatch, "#!/bin/sh\n#SBATCH"},
    {How::By::shell, "lockstep run -np 4 --max-restarts"},
    {How::By::shell, "lockstep run -np 4 --log-dir"},
    {How::By::shell, "lockstep run --dry-run"},
    {How::By::pbs, "#!/bin/sh\n#PBS"},
    {How::By::cobalt, "#!/bin/sh\n#COBALT"},
    {How::By::others, "mpirun -np 4 ./train"},
    {How::By::spawning, "torchrun --nproc-per-node 4 --no-python ./spawning"},
    {How::By::nowhere, "docker run", "there is neither Docker nor Apptainer in a test"},
    {How::By::nowhere, "conda create", "it would fetch a compiler"},
    {How::By::nowhere, "script/build release && cmake --install",
     "Install.* does it, into a folder of its own"},
};

std::vector<std::string> all_blocks() { return shell_blocks_in("docs/running.md"); }

const How* how_to_run(const std::string& block) {
  const auto found =
      std::ranges::find_if(known, [&](const How& how) { return block.starts_with(how.begins); });
  return found == std::end(known) ? nullptr : &*found;
}

class RunningDocs : public SshJobTest {
 protected:
  void make() {
    blocks_ = all_blocks();
    ASSERT_GT(blocks_.size(), 10U);
    REQUIRE_SSH_HOSTS(2);
    work_ = folder() / "work";
    fs::create_directories(work_ / "bin");
    for (const char* name : {"train", "digits"})
      executable(work_ / name, "exec " + program("probe_rank") + " barrier all_reduce,f32,1000");
    executable(work_ / "spawning", "exec " + program("probe_spawn") + " 4");
    executable(work_ / "bin/ssh", "exec /usr/bin/" + servers().client() + " \"$@\"");
    fs::create_symlink(program("lockstep"), work_ / "bin/lockstep");
    std::ofstream(work_ / "hosts") << hosts().address(0) << " slots=1\n" << hosts().address(1) << ":1\n";
  }
  std::vector<std::string> blocks_by(How::By by) const {
    std::vector<std::string> found;
    for (const std::string& block : blocks_) {
      const How* how = how_to_run(block);
      if (how != nullptr && how->by == by) found.push_back(block);
    }
    EXPECT_FALSE(found.empty());
    return found;
  }
  static void executable(const fs::path& path, const std::string& script) {
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(path, fs::perms::owner_all);
  }
  /// A script on `host`, which finds our programs, and server1 and server2 by their names.
  Process start_script(const std::string& script, int host, const Variables& more = {},
                       const std::string& path = "") const {
    const std::string prepared = "mount --bind " + servers().names().string() + " /etc/hosts; cd " +
                                 work_.string() + "; export PATH=" + (work_ / "bin").string() +
                                 (path.empty() ? "" : ":" + path) + ":$PATH; ";
    Variables variables = {{"LOCKSTEP_INIT_TIMEOUT", "40s"}, {"HOME", work_.string()}};
    variables.insert(variables.end(), more.begin(), more.end());
    return start({"unshare", "--mount", "/bin/bash", "-ec", prepared + script}, variables,
                 hosts().network(host));
  }
  void expect_to_work(const std::string& script, const Variables& more = {},
                      const std::string& path = "") const {
    const Ending ending = start_script(script, 0, more, path).finish();
    EXPECT_EQ(ending.exit_code, 0) << script << ending.out << ending.err;
  }
  const fs::path& work() const { return work_; }

 private:
  std::vector<std::string> blocks_;
  fs::path work_;
};

#define REQUIRE_DOCS() \
  make();              \
  if (IsSkipped() || HasFatalFailure()) return

TEST_F(RunningDocs, AreAllKnown) {
  for (const std::string& block : all_blocks())
    EXPECT_NE(how_to_run(block), nullptr) << "nobody runs this:\n" << block;
}

TEST_F(RunningDocs, WorkInAShell) {
  REQUIRE_DOCS();
  for (const std::string& block : blocks_by(How::By::shell)) {
    std::istringstream lines(block);
    for (std::string line; std::getline(lines, line);) expect_to_work(line);
  }
}

TEST_F(RunningDocs, WorkOnEachHost) {
  REQUIRE_DOCS();
  for (const std::string& block : blocks_by(How::By::each_host)) {
    const std::size_t second_line = block.find('\n') + 1;
    expect_to_work(block.substr(0, second_line));
    Process second = start_script(block.substr(second_line), 1);
    expect_to_work(block.substr(second_line));
    const Ending ending = second.finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, HasSubstr("of 8 done"));
  }
}

TEST_F(RunningDocs, WorkUnderPbsAndCobalt) {
  REQUIRE_DOCS();
  std::ofstream(work() / "nodes") << "server1\nserver1\nserver2\nserver2\n";
  std::ofstream(work() / "two") << "server1\nserver2\n";
  for (const std::string& block : blocks_by(How::By::pbs))
    expect_to_work(block, {{"PBS_NODEFILE", work() / "nodes"}, {"PBS_O_WORKDIR", work()}});
  for (const std::string& block : blocks_by(How::By::cobalt))
    expect_to_work(block, {{"COBALT_NODEFILE", work() / "two"}});
}

TEST_F(RunningDocs, WorkUnderSlurm) {
  REQUIRE_DOCS();
  std::string why_not;
  fs::create_directory(folder() / "slurm");
  const auto cluster = SlurmCluster::start(hosts(), folder() / "slurm", why_not);
  if (!cluster) GTEST_SKIP() << why_not;
  std::ofstream(work() / "secret") << "known to all nodes of the job";
  fs::permissions(work() / "secret", fs::perms::owner_read);
  for (std::string block : blocks_by(How::By::sbatch)) {
    for (const auto& [from, to] : {std::pair("--ntasks-per-node=4 --cpus-per-task=8", "--ntasks-per-node=1"),
                                   {"--cpus-per-task=8", ""},
                                   {"--nproc-per-node 8", "--nproc-per-node 2"},
                                   {"--ntasks=4", "--ntasks=1"}})
      block = replaced(block, from, to);  // the nodes are this machine
    const fs::path script = work() / "job.sh", out = work() / "out";
    std::ofstream(script) << block;
    const std::vector<std::string> words = {
        "env",    "-C",     work(), "PATH=" + (work() / "bin").string() + ":/usr/bin:/bin:/usr/sbin:/sbin",
        "sbatch", "--wait", "-o",   out,
        script};
    const Ending ending = start(cluster->command(words), {}, hosts().network(0)).finish();
    const std::string text = text_in(out);
    EXPECT_EQ(ending.exit_code, 0) << block << ending.err << text;
    EXPECT_THAT(text, HasSubstr("done"));
  }
}

TEST_F(RunningDocs, WorkUnderOtherLaunchers) {
  REQUIRE_DOCS();
  const auto folder_of = [](const std::string& peer, const std::string& name) {
    const auto found = peer_program(peer, name);
    return found ? found->parent_path().string() : std::string();
  };
  const Variables by_ssh = {{"PRTE_MCA_plm_ssh_agent", work() / "bin/ssh"},
                            {"HYDRA_LAUNCHER_EXEC", work() / "bin/ssh"},
                            {"HYDRA_LAUNCHER", "ssh"},
                            {"PET_LOG_DIR", folder() / "logs"},
                            {"TORCHINDUCTOR_CACHE_DIR", folder() / "inductor"},
                            {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                            {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                            {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"}};
  int run = 0;
  for (const std::string& block : blocks_by(How::By::others)) {
    std::istringstream lines(block);
    for (std::string line; std::getline(lines, line);) {
      std::vector<std::string> paths;
      if (line.starts_with("mpirun -np 4"))
        paths = {folder_of("openmpi", "mpirun"), folder_of("mpich", "mpirun")};
      if (line.starts_with("mpirun -np 8")) paths = {folder_of("openmpi", "mpirun")};
      if (line.starts_with("mpiexec -n 8")) paths = {folder_of("mpich", "mpiexec")};
      if (line.starts_with("torchrun")) paths = {folder_of("torch", "torchrun")};
      if (line.starts_with("srun") || line.starts_with("horovodrun"))
        continue;  // UnderSlurm.*, script/soak horovodrun
      if (line.starts_with("TF_CONFIG")) {
        const Variables secret = {{"LOCKSTEP_SECRET_FILE", secret_file("known to both hosts")}};
        Process other = start_script(replaced(line, "\"index\": 0", "\"index\": 1"), 1, secret);
        expect_to_work(line, secret);
        EXPECT_EQ(other.finish().exit_code, 0);
        ++run;
        continue;
      }
      EXPECT_FALSE(paths.empty()) << "nobody runs this: " << line;
      for (const std::string& path : paths) {
        if (path.empty()) continue;  // it is not installed
        expect_to_work(line, by_ssh, path);
        ++run;
      }
    }
  }
  EXPECT_GT(run, 0);
}

TEST_F(RunningDocs, SayWhatIsWrongWithThatOne) {
  REQUIRE_DOCS();
  const auto torchrun = peer_program("torch", "torchrun");
  if (!torchrun) GTEST_SKIP() << "torch is not installed: script/bootstrap --peers torch";
  for (const std::string& block : blocks_by(How::By::spawning)) {
    const Ending ending =
        start_script(block, 0,
                     {{"PET_LOG_DIR", folder() / "logs"}, {"TORCHINDUCTOR_CACHE_DIR", folder() / "inductor"}},
                     torchrun->parent_path().string())
            .finish();
    EXPECT_THAT(ending.out + ending.err, HasSubstr("spawn: this process is already rank"));
  }
}

}  // namespace
}  // namespace lockstep::testing
