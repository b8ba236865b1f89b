// Calls on GPUs by ranks that are processes: what is missing, and who dies, is named.
#include "tests/gpu/standin_libraries.h"
#include "tests/support/job_test.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class GpuJobs : public testing::JobTest {
 protected:
  testing::Ending job(const std::string& action, testing::Variables variables = {}) const {
    variables.emplace_back("STANDIN_NCCL_DIR", folder().string());
    return start({testing::program("lockstep"), "run", "--no-prefix", "-np", "2",
                  testing::program("probe_gpu"), action},
                 std::move(variables))
        .finish();
  }
};

/// By a GPU for each rank, and by one for all (1).
class AnyGpuJobs : public GpuJobs, public ::testing::WithParamInterface<const char*> {
 protected:
  testing::Ending job(const std::string& action, testing::Variables variables = {}) const {
    variables.emplace_back("STANDIN_ONE_GPU", GetParam());
    return GpuJobs::job(action, std::move(variables));
  }
};
INSTANTIATE_TEST_SUITE_P(ThatShareOne, AnyGpuJobs, ::testing::Values("0", "1"));

TEST_P(AnyGpuJobs, AddUp) {
  const auto ending = job("sum");
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(ending.out, "probe sum 3\nprobe sum 3\n");
}

/// What is to be seen on a real GPU, over the stand-in.
TEST_F(GpuJobs, AreCheckedByTheCheckForRealOnes) {
  for (const char* const ranks : {"1", "2"}) {
    const auto ending =
        start({testing::program("lockstep"), "run", "--no-prefix", "-np", ranks,
               testing::program("check_gpu"), "--times", "100"},
              {{"LD_LIBRARY_PATH", testing::standin_libraries()}, {"STANDIN_NCCL_DIR", folder().string()}})
            .finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.out << ending.err;
    EXPECT_THAT(ending.out,
                AllOf(HasSubstr("rank 0 of " + std::string(ranks) + " on GPU 0, Stand-in, NCCL 2.27.3\n"),
                      HasSubstr("collectives: right"), HasSubstr("optimizers: right, of all types"),
                      HasSubstr("streams: in order"),
                      ContainsRegex("a call of 4 bytes: [0-9.]+ us, ncclAllReduce alone")));
  }
}

TEST_F(GpuJobs, AreToldByTheDoctorWhichNcclThereIs) {
  const std::vector<std::string> doctor = {testing::program("lockstep"), "doctor"};
  EXPECT_THAT(start(doctor, {{"LD_LIBRARY_PATH", testing::standin_libraries()}}).finish().out,
              AllOf(ContainsRegex("NCCL +2\\.27\\.3\n"),
                    ContainsRegex("GPU kernels +(built in|none: this Lockstep was built where)")));
  EXPECT_THAT(start(doctor, {{"LOCKSTEP_NCCL_LIBRARY", "/nowhere/libnccl.so.2"}}).finish().out,
              ContainsRegex("NCCL +none: cannot load /nowhere/libnccl.so.2"));
}

TEST_P(AnyGpuJobs, GoOnInTheNextWorld) {
  const auto ending = job("worlds");
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(ending.out, "probe sum 3\nprobe sum 3\nprobe sum 3\nprobe sum 3\n");
}

TEST_P(AnyGpuJobs, NameARankThatIsKilledInACall) {
  const auto ending = job("kill");
  EXPECT_EQ(ending.exit_code, 128 + SIGKILL);
  EXPECT_THAT(ending.out,
              ContainsRegex("probe rank 0 failed: peer_lost 1 all_reduce #1 .* on GPU 0 in group \"world\": "
                            "rank 1 .*was killed by signal 9"));
}

TEST_P(AnyGpuJobs, NameARankThatIsStoppedBeforeACall) {
  const auto ending = job("stop", {{"LOCKSTEP_TIMEOUT", "1s"}});
  EXPECT_THAT(
      ending.out,
      ContainsRegex("probe rank 0 failed: timeout 1 all_reduce #1 .*: rank 1 did not call all_reduce #1"));
}

/// On both ranks: of the one that it was, and of the one that has to know that it was not its own.
TEST_P(AnyGpuJobs, NameARankWhoseKernelGoesWrong) {
  const auto ending = job("break");
  EXPECT_EQ(ending.exit_code, 1);
  for (const char* const rank : {"rank 0", "rank 1"}) {
    EXPECT_THAT(
        ending.out,
        ContainsRegex(std::string("probe ") + rank +
                      " failed: system 1 all_reduce.*: rank 1: .*CUDA_ERROR_ILLEGAL_ADDRESS.; a kernel "
                      "that the program ran before this went wrong"));
  }
}

TEST_P(AnyGpuJobs, NameARankThatLeaves) {
  const auto ending = job("leave");
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(
      ending.out,
      ContainsRegex("probe rank 0 failed: peer_lost 1 .*rank 1 left the job while others still needed it"));
}

TEST_P(AnyGpuJobs, OfACopyOfAProcessAreRefused) {
  const auto ending = job("fork");
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out,
              AllOf(ContainsRegex("probe child: .*fork"), HasSubstr("probe child ended with 0\n")));
}

TEST_F(GpuJobs, AreToldThatTheWorldIsShutDown) {
  const auto ending = job("shut_down");
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("aborted"));
}

TEST_F(GpuJobs, NeedAnNcclThatIsNewEnough) {
  const auto ending = job("sum", {{"STANDIN_NCCL_VERSION", "21403"}});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.out, HasSubstr("unsupported - NCCL is 2.14.3 here; Lockstep needs 2.18.0 or newer"));
}

TEST_F(GpuJobs, NeedTheSameNcclOnAllRanks) {
  const std::string script = "[ \"$RANK\" = 0 ] || export STANDIN_NCCL_VERSION=22800; exec " +
                             testing::program("probe_gpu") + " sum";
  const auto ending =
      start({testing::program("lockstep"), "run", "--no-prefix", "-np", "2", "sh", "-c", script},
            {{"STANDIN_NCCL_DIR", folder().string()}})
          .finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.out,
              HasSubstr("unsupported - rank 1 has NCCL 2.28.0, rank 0 has 2.27.3: all need the same"));
}

// In some containers.
TEST_F(GpuJobs, ThatShareOneAreToldWhereProcessesMayNotShareItsMemory) {
  const auto ending = job("sum", {{"STANDIN_ONE_GPU", "1"}, {"STANDIN_NO_IPC", "1"}});
  EXPECT_EQ(ending.exit_code, 1);
  for (const char* const rank : {"rank 0", "rank 1"}) {
    EXPECT_THAT(ending.out,
                ContainsRegex(std::string("probe ") + rank +
                              " failed: unsupported [01] CUDA does not let rank [01] share memory of GPU 0 "
                              "with other processes"));
  }
  EXPECT_THAT(ending.err, ContainsRegex("that rank [01] shares on GPU 0"));
}

TEST_F(GpuJobs, NeedAnNccl) {
  const auto ending = job("sum", {{"LOCKSTEP_NCCL_LIBRARY", "/nowhere/libnccl.so.2"}});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.out, AllOf(HasSubstr("unsupported - cannot load /nowhere/libnccl.so.2"),
                                HasSubstr("install libnccl2")));
}

TEST_F(GpuJobs, NeedAGpu) {
  const auto ending = job("sum", {{"STANDIN_GPUS", "0"}});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(
      ending.out,
      AllOf(HasSubstr("unsupported - NVIDIA's driver does not begin: no CUDA-capable device is detected"),
            HasSubstr("nvidia-smi")));
}

TEST_F(GpuJobs, OfEngineNcclSayAtOnceWhatIsMissing) {
  const auto ending = job("main_memory", {{"LOCKSTEP_ENGINE", "nccl"}, {"STANDIN_GPUS", "0"}});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.out,
              HasSubstr("engine nccl, which moves data between GPUs: NVIDIA's driver does not begin"));
  const auto right = job("main_memory", {{"LOCKSTEP_ENGINE", "nccl"}});
  EXPECT_EQ(right.exit_code, 0) << right.err;
}

TEST_F(GpuJobs, ThatShareOneNeedNoNccl) {
  const auto ending =
      job("sum", {{"STANDIN_ONE_GPU", "1"}, {"LOCKSTEP_NCCL_LIBRARY", "/nowhere/libnccl.so.2"}});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
}

TEST_F(GpuJobs, ThatShareOneAreCheckedByTheCheckForRealOnes) {
  const auto ending =
      start({testing::program("lockstep"), "run", "--no-prefix", "-np", "3", testing::program("check_gpu"),
             "--device", "0", "--times", "20", "--largest", "100000"},
            {{"LD_LIBRARY_PATH", testing::standin_libraries()},
             {"STANDIN_ONE_GPU", "1"},
             {"STANDIN_KERNELS", "1"}})
          .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.out << ending.err;
  EXPECT_THAT(ending.out, AllOf(HasSubstr("collectives: right, also in the arena, of 20 random sizes"),
                                HasSubstr("optimizers: right, of all types"), HasSubstr("streams: in order"),
                                ContainsRegex("all_reduce of 4 B: [0-9.]+ us, share")));
}

}  // namespace
}  // namespace lockstep
