// Under Slurm, a real one of two nodes: ranks that srun starts, and `lockstep run` inside an allocation.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/job_test.h"
#include "tests/support/slurm_cluster.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class UnderSlurm : public JobTest {
 protected:
  void make() {
    if (!has_hosts(2)) GTEST_SKIP() << why_no_hosts();
    std::string why_not;
    std::filesystem::create_directory(folder() / "slurm");
    cluster_ = SlurmCluster::start(hosts(), folder() / "slurm", why_not);
    if (!cluster_) GTEST_SKIP() << why_not;
  }
  void TearDown() override {
    cluster_.reset();
    JobTest::TearDown();
  }
  Ending run_by(const std::vector<std::string>& words, Variables variables = {}) const {
    variables.insert(variables.begin(), {"LOCKSTEP_INIT_TIMEOUT", "20s"});
    return start(cluster_->command(words), variables, hosts().network(0)).finish();
  }

 private:
  std::optional<SlurmCluster> cluster_;
};

#define REQUIRE_SLURM() \
  make();               \
  if (IsSkipped()) return

TEST_F(UnderSlurm, RanksOfSrunFindEachOther) {
  REQUIRE_SLURM();
  const Ending two = run_by(
      {"srun", "--mpi=pmi2", "-N2", "-n3", program("probe_rank"), "everything", "next_world", "barrier"});
  EXPECT_EQ(two.exit_code, 0) << two.err;
  for (const char* rank : {"rank=0 of 3 done", "rank=1 of 3 done", "rank=2 of 3 done"})
    EXPECT_THAT(two.out, HasSubstr(rank)) << "on two hosts, through PMI-2";

  const Ending by_pmix = run_by(
      {"srun", "--mpi=pmix", "-N2", "-n3", program("probe_rank"), "everything", "next_world", "barrier"});
  EXPECT_EQ(by_pmix.exit_code, 0) << by_pmix.err;
  for (const char* rank : {"rank=0 of 3 done", "rank=1 of 3 done", "rank=2 of 3 done"})
    EXPECT_THAT(by_pmix.out, HasSubstr(rank)) << "on two hosts, through PMIx";

  const Ending one = run_by({"srun", "-N1", "-n2", program("probe_rank"), "everything"});
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("rank=1 of 2 done")) << "on one host, without PMI";

  const Ending none = run_by({"srun", "-N2", "-n2", program("probe_rank"), "barrier"});
  EXPECT_NE(none.exit_code, 0);
  EXPECT_THAT(none.err, AllOf(HasSubstr("MASTER_ADDR"), HasSubstr("LOCKSTEP_SECRET_FILE"),
                              HasSubstr("--mpi=pmi2"), HasSubstr("LOCKSTEP_MEETING_DIR")))
      << "on two hosts, without PMI: no world of one";

  const std::filesystem::path shared = folder() / "shared";
  std::filesystem::create_directory(shared);
  const Ending by_file =
      run_by({"srun", "-N2", "-n3", program("probe_rank"), "everything", "next_world", "barrier"},
             {{"LOCKSTEP_MEETING_DIR", shared.string()}});
  EXPECT_EQ(by_file.exit_code, 0) << by_file.err;
  EXPECT_THAT(by_file.out, HasSubstr("rank=2 of 3 done"));
  EXPECT_TRUE(std::filesystem::is_empty(shared)) << "the secret is left behind";

  const Ending told = run_by({"srun", "-N2", "-n2", program("probe_rank"), "everything"},
                             {{"MASTER_ADDR", hosts().address(0)},
                              {"MASTER_PORT", "29517"},
                              {"LOCKSTEP_SECRET_FILE", secret_file("ours")}});
  EXPECT_EQ(told.exit_code, 0) << told.err;
  EXPECT_THAT(told.out, HasSubstr("rank=1 of 2 done"));
}

TEST_F(UnderSlurm, LockstepRunTakesTheAllocationsHosts) {
  REQUIRE_SLURM();
  const Ending all =
      run_by({"salloc", "-N2", "-n4", program("lockstep"), "run", program("probe_rank"), "everything"});
  EXPECT_EQ(all.exit_code, 0) << all.err;
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_THAT(all.out, ContainsRegex("\\[" + std::to_string(rank) + "\\] .*checked [0-9]{3} calls"));

  const Ending more = run_by(
      {"salloc", "-N2", "-n2", program("lockstep"), "run", "-np", "3", program("probe_rank"), "barrier"});
  EXPECT_EQ(more.exit_code, 2);
  EXPECT_THAT(more.err, AllOf(HasSubstr("3"), HasSubstr("n1:1, n2:1")));

  const std::filesystem::path script = folder() / "job.sh", out = folder() / "out";
  std::ofstream(script) << "#!/bin/sh\n#SBATCH --nodes=2 --ntasks-per-node=1\n"
                        << program("lockstep") << " run " << program("probe_rank") << " everything\n";
  const Ending batch = run_by({"sbatch", "--wait", "-o", out.string(), script.string()});
  EXPECT_EQ(batch.exit_code, 0) << batch.err;
  const std::string text = text_in(out);
  EXPECT_THAT(text, AllOf(ContainsRegex("\\[0\\] .*checked [0-9]{3} calls"),
                          ContainsRegex("\\[1\\] .*checked [0-9]{3} calls")));
}

TEST_F(UnderSlurm, LaunchersOfEachNodeMeet) {
  REQUIRE_SLURM();
  const Ending each_alone =
      run_by({"srun", "-N2", "-n2", program("lockstep"), "run", program("probe_rank"), "barrier"});
  EXPECT_NE(each_alone.exit_code, 0);
  EXPECT_THAT(each_alone.err, HasSubstr("this is one of 2 processes started by srun"));
  const Ending ending = run_by({"srun", "-N2", "-n2", program("lockstep"), "run", "--nnodes", "2",
                                "--nproc-per-node", "2", "--rdzv-endpoint", hosts().address(0) + ":29533",
                                "--rdzv-id", "17", program("probe_rank"), "everything"},
                               {{"LOCKSTEP_SECRET_FILE", secret_file("known to both nodes")}});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_THAT(ending.out, ContainsRegex("\\[" + std::to_string(rank) + "\\] .*checked [0-9]{3} calls"));
}

TEST_F(UnderSlurm, ASignalAheadOfTheEndReachesAllRanks) {
  REQUIRE_SLURM();
  const std::filesystem::path script = folder() / "job.sh", out = folder() / "out";
  std::ofstream(script) << "#!/bin/sh\n#SBATCH --nodes=2 --ntasks-per-node=1 --signal=B:USR1@120\n"
                        << program("lockstep")
                        << " run /bin/sh -c 'trap \"echo saved; exit 0\" USR1; echo ready; "
                        << "while :; do sleep 0.1; done' &\n"
                        << "trap 'kill -USR1 $!; wait $!; echo ended with $?' USR1\nwait $!\n";
  const auto text = [&] { return text_in(out); };
  const auto until = [&](const auto& is_so) {  // Slurm says nothing when a job prints or ends
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    while (!is_so() && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  const auto await = [&](const std::string& words) {
    until([&] { return text().find(words) != std::string::npos; });
    EXPECT_THAT(text(), HasSubstr(words));
  };
  const Ending queued = run_by({"sbatch", "--parsable", "-o", out.string(), script.string()});
  ASSERT_EQ(queued.exit_code, 0) << queued.err;
  await("[0] ready");
  await("[1] ready");
  const std::string job = queued.out.substr(0, queued.out.find_first_not_of("0123456789"));
  EXPECT_EQ(run_by({"scancel", "--signal=USR1", "--batch", job}).exit_code, 0);
  await("ended with 0");
  EXPECT_THAT(text(), AllOf(HasSubstr("[0] saved"), HasSubstr("[1] saved")));
  until([&] { return run_by({"squeue", "--noheader", "--jobs", job}).out.empty(); });
}

}  // namespace
}  // namespace lockstep::testing
