// Calls on GPUs by ranks on several hosts, which they take themselves for by LOCKSTEP_NODE: those of a host share its GPU. Kernels add up
// on each, slices cross through main memory.
#include <signal.h>

#include "tests/gpu/standin_libraries.h"
#include "tests/support/job_test.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class GpuHosts : public testing::JobTest {
 protected:
  /// So many ranks on each host, each with all `words`.
  std::vector<testing::Process> begin(const std::vector<int>& hosts, const std::vector<std::string>& words,
                                      const testing::Variables& more = {}) const {
    int size = 0;
    for (const int ranks : hosts) size += ranks;
    std::vector<testing::Process> started;
    for (std::size_t host = 0; host < hosts.size(); ++host) {
      for (int local = 0; local < hosts[host]; ++local) {
        testing::Variables variables = {{"LOCKSTEP_NODE", std::to_string(host)},
                                        {"LOCKSTEP_SECRET_FILE", secret_file("hosts with GPUs")},
                                        {"LD_LIBRARY_PATH", testing::standin_libraries()},
                                        {"STANDIN_KERNELS", "1"},
                                        {"STANDIN_ONE_GPU", "1"},
                                        {"STANDIN_NCCL_DIR", folder().string()}};
        variables.insert(variables.end(), more.begin(), more.end());
        started.push_back(start(words, by_hand(static_cast<int>(started.size()), size, variables)));
      }
    }
    return started;
  }
  /// To their ends.
  std::vector<testing::Ending> job(const std::vector<int>& hosts, const std::vector<std::string>& words,
                                   const testing::Variables& more = {}) const {
    auto started = begin(hosts, words, more);
    return finish(started);
  }
  std::vector<testing::Ending> probes(const std::vector<int>& hosts, const std::string& action,
                                      const testing::Variables& more = {}) const {
    return job(hosts, {testing::program("probe_gpu"), action}, more);
  }
  void expect_sums(const std::vector<testing::Ending>& endings, const std::string& out) {
    for (const auto& ending : endings) {
      EXPECT_EQ(ending.exit_code, 0) << ending.out << ending.err;
      EXPECT_EQ(ending.out, out);
    }
  }

  const testing::Variables sliced = {{"LOCKSTEP_GPU_SLICED_FROM", "1"}, {"LOCKSTEP_GPU_PIECE_BYTES", "1000"}};
};

/// Slices of every length, and calls that are too short for them; hosts with as many ranks, and with one less.
TEST_F(GpuHosts, AreCheckedByTheCheckForRealOnes) {
  for (const auto& [hosts, from] :
       {std::pair(std::vector{2, 3}, "1"), std::pair(std::vector{1, 2, 1}, "20000")}) {
    const auto endings = job(
        hosts, {testing::program("check_gpu"), "--device", "0", "--times", "6", "--largest", "20000"},
        {{"LOCKSTEP_GPU_SLICED_FROM", from},
         {"LOCKSTEP_GPU_PIECE_BYTES", "70000"},
         // LeakSanitizer falls over the libraries that this one loads; the probes, which load the same later, it bears.
         {"ASAN_OPTIONS", "detect_leaks=0"}});
    for (const auto& ending : endings) {
      EXPECT_EQ(ending.exit_code, 0) << ending.out << ending.err;
      EXPECT_THAT(ending.out, AllOf(HasSubstr("collectives: right, of all types"),
                                    HasSubstr("collectives: right, also in the arena, of 6 random sizes"),
                                    HasSubstr("streams: in order")));
    }
  }
}

TEST_F(GpuHosts, OfOneRankEachNeedNoNccl) {
  const testing::Variables own = {{"STANDIN_ONE_GPU", "0"},
                                  {"LOCKSTEP_NCCL_LIBRARY", "/nowhere/libnccl.so.2"}};
  expect_sums(probes({1, 1, 1}, "sum", own), "probe sum 6\n");
  // Two of them could be added up on the host by NCCL alone.
  for (const auto& ending : probes({1, 2}, "sum", own)) {
    EXPECT_EQ(ending.exit_code, 1);
    EXPECT_THAT(ending.out, HasSubstr("unsupported"));
    EXPECT_THAT(ending.out, HasSubstr("cannot load /nowhere/libnccl.so.2"));
  }
}

/// What NCCL can, it does.
TEST_F(GpuHosts, OfOneRankEachTakeNcclWhereThereIsOne) {
  for (const auto& ending :
       probes({1, 1}, "sum", {{"STANDIN_ONE_GPU", "0"}, {"LOCKSTEP_GPU_PIECE_BYTES", "0"}}))
    EXPECT_THAT(ending.out, HasSubstr("LOCKSTEP_GPU_PIECE_BYTES=0"));
  expect_sums(probes({1, 1}, "sum", {{"STANDIN_ONE_GPU", "0"}}), "probe sum 3\n");
}

/// The first rank's sizes hold, else others would wait for a slice that never comes.
TEST_F(GpuHosts, DoAsTheFirstRankSays) {
  const std::string words =
      "[ $RANK = 0 ] || export LOCKSTEP_GPU_SLICED_FROM=1G; exec " + testing::program("probe_gpu") + " sum";
  expect_sums(job({2, 2}, {"sh", "-c", words}, sliced), "probe sum 10\n");
}

TEST_F(GpuHosts, GoOnInTheNextWorld) {
  expect_sums(probes({2, 2}, "worlds", sliced), "probe sum 10\nprobe sum 10\n");
}

TEST_F(GpuHosts, NeedOneGpuForEachHost) {
  const std::string words =
      "[ $RANK = 3 ] || export STANDIN_ONE_GPU=1; exec " + testing::program("probe_gpu") + " sum";
  for (const auto& ending : job({2, 2}, {"sh", "-c", words}, {{"STANDIN_ONE_GPU", "0"}})) {
    EXPECT_EQ(ending.exit_code, 1);
    EXPECT_THAT(ending.out,
                ContainsRegex("unsupported - ranks 0 and 1 have the same GPU .*, which NCCL does not "
                              "allow: give each rank its own .device_for., or all of a host the same"));
  }
}

/// CUDA's word to the ranks of one host is heard on all.
TEST_F(GpuHosts, AreToldWhereProcessesOfOneHostMayNotShareItsMemory) {
  const std::string words =
      "[ $RANK -lt 2 ] || export STANDIN_NO_IPC=1; exec " + testing::program("probe_gpu") + " sum";
  for (const auto& ending : job({2, 2}, {"sh", "-c", words})) {
    EXPECT_EQ(ending.exit_code, 1);
    EXPECT_THAT(ending.out,
                ContainsRegex("failed: unsupported [23] CUDA does not let rank [23] share memory"));
  }
}

TEST_F(GpuHosts, AreToldThatTheWorldIsShutDown) {
  for (const auto& ending : probes({2, 2}, "shut_down", sliced)) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, AllOf(HasSubstr("probe sum 10\n"), HasSubstr("failed: aborted")));
    EXPECT_EQ(ending.err, "");
  }
}

TEST_F(GpuHosts, OfACopyOfAProcessAreRefused) {
  for (const auto& ending : probes({2, 2}, "fork", sliced)) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out,
                AllOf(ContainsRegex("probe child: .*fork"), HasSubstr("probe child ended with 0\n"),
                      ContainsRegex("probe sum 10\n.*\n.*\nprobe sum 10\n")));
  }
}

/// Of those on the host of the rank that is lost, and of the others.
class LostGpuHosts : public GpuHosts,
                     public ::testing::WithParamInterface<std::tuple<std::vector<int>, bool>> {
 protected:
  /// All but rank 1, to their ends.
  std::vector<testing::Ending> lose(const std::string& action, testing::Variables more = {}) const {
    const auto& [hosts, is_sliced] = GetParam();
    if (is_sliced) more.insert(more.end(), sliced.begin(), sliced.end());
    auto ranks = begin(hosts, {testing::program("probe_gpu"), action}, more);
    std::vector<testing::Ending> endings;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (rank != 1) endings.push_back(ranks[rank].finish());
    }
    ranks[1].send(SIGKILL);
    (void)ranks[1].finish();
    return endings;
  }
};
INSTANTIATE_TEST_SUITE_P(Of, LostGpuHosts,
                         ::testing::Combine(::testing::Values(std::vector{2, 2}, std::vector{1, 2},
                                                              std::vector{3, 1}),
                                            ::testing::Bool()));

TEST_P(LostGpuHosts, NameARankThatIsKilledInACall) {
  const auto endings = lose("kill");
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.exit_code, 1);
    EXPECT_THAT(ending.out,
                ContainsRegex("failed: peer_lost 1 all_reduce #1 .* on GPU 0 in group \"world\": .*rank 1"));
  }
}

TEST_P(LostGpuHosts, NameARankThatIsStoppedBeforeACall) {
  const auto endings = lose("stop", {{"LOCKSTEP_TIMEOUT", "1s"}});
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.exit_code, 1);
    EXPECT_THAT(ending.out, ContainsRegex("failed: [a-z_]+ 1 all_reduce #1 .*: .*rank 1"));
  }
}

/// The others' part on the host is a sum, which is no mistake of theirs.
TEST_P(LostGpuHosts, NameARankThatIsStoppedBeforeAnAverage) {
  for (const auto& ending : lose("stop_in_average", {{"LOCKSTEP_TIMEOUT", "1s"}}))
    EXPECT_THAT(ending.out, ContainsRegex("failed: timeout 1 all_reduce #1 .average.*: .*rank 1"));
}

TEST_P(LostGpuHosts, NameARankThatAveragesWhatTheOthersAdd) {
  for (const auto& ending : lose("sum_and_average"))
    EXPECT_THAT(
        ending.out,
        ContainsRegex("failed: mismatch - .*rank [0-2] called all_reduce .*rank [1-3] called all_reduce"));
}

TEST_P(LostGpuHosts, NameARankThatCallsSomethingElse) {
  for (const auto& ending : lose("mismatch")) {
    EXPECT_EQ(ending.exit_code, 1);
    EXPECT_THAT(
        ending.out,
        ContainsRegex(
            "failed: mismatch - all_reduce.*: ranks called different operations: rank [01] called all_reduce "
            ".sum of f32 x [0-9]+. as #[01], rank [1-3] called all_reduce .sum of f32 x [0-9]+. as #[01]"));
  }
}

TEST_P(LostGpuHosts, NameARankWhoseKernelGoesWrong) {
  for (const auto& ending : lose("break")) {
    EXPECT_EQ(ending.exit_code, 1);
    EXPECT_THAT(ending.out, ContainsRegex("failed: system 1 all_reduce .* in group \"world\": rank 1: "
                                          ".*ILLEGAL_ADDRESS.; a kernel that the "
                                          "program ran before this went wrong"));
  }
}

TEST_P(LostGpuHosts, NameARankThatLeaves) {
  const auto endings = lose("leave");
  EXPECT_EQ(endings.front().exit_code, 1);
  EXPECT_THAT(endings.front().out,
              ContainsRegex("failed: peer_lost [0-9] .*rank [0-9] left the (job|group)"));
}

}  // namespace
}  // namespace lockstep
