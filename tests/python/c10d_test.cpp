// torch.distributed over Lockstep: what its operations do beside Gloo's, torch's own training on it, what it says when something is
// wrong, and how a default group begins.
#include <csignal>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/python/python_job.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class C10d : public PythonJob {
 protected:
  void SetUp() override {
    PythonJob::SetUp();
    use_peer("torch");
  }
  Process program_of(const std::vector<std::string>& words, int ranks = 2, const Variables& more = {}) const {
    std::vector<std::string> all = {"c10d_programs.py"};
    all.insert(all.end(), words.begin(), words.end());
    return job(ranks, all, more);
  }
  /// It ends well, and each rank says this.
  void expect_each_says(const std::vector<std::string>& words, const std::string& text, int ranks = 2) const {
    const Ending ending = program_of(words, ranks).finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_THAT(ending.out, HasSubstr("probe " + std::to_string(rank) + " " + text + "\n")) << ending.err;
  }
  /// What rank 0 says of it under Gloo is what it says under Lockstep.
  void expect_as_gloo(const std::string& action) const {
    const auto said = [&](const char* backend, const std::string& place) {
      const Ending ending = program_of({action, folder() / place}, 2, {{"PROBE_BACKEND", backend}}).finish();
      EXPECT_EQ(ending.exit_code, 0) << backend << "\n" << ending.err;
      std::string lines, line;
      for (std::istringstream all(ending.out); std::getline(all, line);)
        if (line.starts_with("probe 0")) lines += line + "\n";
      return lines;
    };
    const std::string ours = said("lockstep", "a");
    EXPECT_THAT(ours, HasSubstr("probe 0"));
    EXPECT_EQ(ours, said("gloo", "b"));
  }
};

class C10dCases : public C10d, public ::testing::WithParamInterface<int> {};

TEST_P(C10dCases, AreDoneAsGlooDoesThem) {
  const Ending ending = job(GetParam(), {"c10d_cases.py"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, ContainsRegex("^1[0-9][0-9] cases, 1 that Gloo refuses, 0 differ\n$"))
      << ending.err;
}

INSTANTIATE_TEST_SUITE_P(Of, C10dCases, ::testing::Values(2, 3),
                         [](const auto& info) { return std::to_string(info.param) + "Ranks"; });

/// Tensors are on a GPU, which there is none of here: fake_gpu.py.
class C10dOnGpus : public C10d {
 protected:
  void SetUp() override {
    C10d::SetUp();
    use_fake_gpu();
  }
  Ending expect_all_cases(const std::string& calls, const Variables& more = {}) const {
    const Ending ending = job(2, {"c10d_cases.py"}, on_fake_gpu(more)).finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, ContainsRegex("^1[0-9][0-9] cases, 1 that Gloo refuses, 0 differ\n" + calls +
                                          " calls on a GPU\n$"))
        << ending.err;
    return ending;
  }
};

TEST_F(C10dOnGpus, CasesAreDoneByNccl) {
  EXPECT_THAT(expect_all_cases("[1-9][0-9]+").err, Not(ContainsRegex(through_main_memory)));
}
TEST_F(C10dOnGpus, CasesAreDoneWhereRanksShareOne) {
  EXPECT_THAT(expect_all_cases("[1-9][0-9]+", {{"STANDIN_ONE_GPU", "1"}}).err,
              Not(ContainsRegex(through_main_memory)));
}
/// Two launchers are two hosts. The ranks of each share its GPU.
TEST_F(C10dOnGpus, CasesAreDoneOnTwoHosts) {
  const Variables more = on_fake_gpu({{"STANDIN_ONE_GPU", "1"},
                                      {"LOCKSTEP_GPU_SLICED_FROM", "16"},
                                      {"LOCKSTEP_SECRET_FILE", secret_file("hosts with GPUs")}});
  std::vector<Process> launchers;
  for (const char* const node : {"0", "1"}) {
    launchers.push_back(start({program("lockstep"), "run", "--no-prefix", "--nnodes", "2", "--node-rank",
                               node, "--master-addr", "127.0.0.1", "--master-port", std::to_string(port()),
                               "--nproc-per-node", "2", python(), source("tests/python/c10d_cases.py")},
                              variables(more)));
  }
  const std::vector<Ending> endings = finish(launchers);
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.err, Not(ContainsRegex(through_main_memory)));
  }
  EXPECT_THAT(
      endings[0].out,
      ContainsRegex("^1[0-9][0-9] cases, 1 that Gloo refuses, 0 differ\n[1-9][0-9]+ calls on a GPU\n$"));
}

TEST_F(C10dOnGpus, CasesAreDoneInMainMemoryWithoutNccl) {
  // A group of one rank needs none.
  const Ending ending = expect_all_cases("1", {{"LOCKSTEP_NCCL_LIBRARY", "/nowhere/libnccl.so.2"}});
  EXPECT_THAT(ending.err,
              ContainsRegex(std::string(through_main_memory) + ".*cannot load /nowhere/libnccl.so.2"));
}

TEST_F(C10dOnGpus, DistributedDataParallelTrainsAsOnTheCpu) {
  const Ending on_cpu = program_of({"ddp"}).finish();
  const Ending ending = program_of({"ddp"}, 2, on_fake_gpu()).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  const auto lines = [](const Ending& of) {
    std::set<std::string> all;
    std::string line;
    for (std::istringstream out(of.out); std::getline(out, line);)
      if (!line.ends_with(" calls on a GPU")) all.insert(line);
    return all;
  };
  EXPECT_EQ(lines(ending).size(), 6U) << ending.out;
  EXPECT_EQ(lines(ending), lines(on_cpu));
  EXPECT_THAT(ending.out, ContainsRegex("probe 0 [1-9][0-9]* calls on a GPU\n"));
  EXPECT_THAT(ending.err, Not(HasSubstr("failed")))
      << "what has ended well is not lost when the group is left";
}

TEST_F(C10dOnGpus, CallbacksMayWaitForOtherOperations) {
  const Ending ending = program_of({"callbacks_that_wait"}, 2, on_fake_gpu()).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const char* line : {
           "probe 0 same True\n",
           "probe 1 same True\n",
           "probe 0 earlier [2.0, 2.0, 2.0]\n",
       })
    EXPECT_THAT(ending.out, HasSubstr(line));
}

TEST_F(C10dOnGpus, TensorsOfSeveralDevicesAreRefused) {
  const Ending ending = program_of({"wrong_devices"}, 2, on_fake_gpu()).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const char* line : {"probe 1 ValueError - - a tensor of (4,) on cpu in a call with one on fake:0: all "
                           "of a call's tensors are on one device\n",
                           "probe 1 ValueError - - a tensor of (2,) on cpu in a call with one on fake:0",
                           "probe 1 after [2.0, 2.0]\n"})
    EXPECT_THAT(ending.out, HasSubstr(line));
}

TEST_F(C10dOnGpus, ARankThatDiesIsNamed) {
  const Ending ending = program_of({"kill"}, 2, on_fake_gpu()).finish();
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(
      ending.out,
      ContainsRegex("probe 0 LockstepError peer_lost 1 .*rank 1 \\(pid [0-9]+\\) was killed by signal 9"))
      << ending.err;
}

TEST_F(C10dOnGpus, ARankThatDoesNotComeIsNamed) {
  const Ending ending = program_of({"stop"}, 2, on_fake_gpu({{"LOCKSTEP_TIMEOUT", "1s"}})).finish();
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(ending.out,
              HasSubstr("probe 0 LockstepError timeout 1 rank 1 did not come to a first call on GPUs"))
      << ending.err;
}

TEST_F(C10d, DistributedDataParallelTrainsAsOverGloo) { expect_as_gloo("ddp"); }

TEST_F(C10d, DistributedDataParallelOfTorch2_0Trains) {
  use_peer("horovod");  // whose torch is 2.0.1
  expect_each_says({"ddp"}, "same True");
}

TEST_F(C10d, CallbacksMayWaitForOtherOperations) {
  const Ending ending = program_of({"callbacks_that_wait"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const char* line : {"probe 0 same True\n", "probe 1 same True\n", "probe 0 earlier [2.0, 2.0, 2.0]\n"})
    EXPECT_THAT(ending.out, HasSubstr(line));
}

TEST_F(C10d, BucketsThatAreRegisteredAreAveragedWhereTheyLie) {
  const Ending ending = program_of({"registered_buckets", folder()}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(
      ending.out,
      AllOf(HasSubstr("probe 0 same True\n"), HasSubstr("probe 1 same True\n"),
            HasSubstr("TypeError - - register_buckets() is for DistributedDataParallel, not Sequential"),
            HasSubstr("ValueError - - register_buckets(): the model's group is not over lockstep: "),
            HasSubstr("probe 0 ways [False, True]\n")));
}

TEST_F(C10d, ZeroAndJoinTrainAsOverGloo) { expect_as_gloo("zero"); }
TEST_F(C10d, Fsdp2TrainsAsOverGlooAndItsCheckpointsAreRead) { expect_as_gloo("fsdp"); }
TEST_F(C10d, TensorParallelLayersGiveWhatTheyGiveOverGloo) { expect_as_gloo("tensor_parallel"); }

TEST_F(C10d, TensorsMayHaveAnyStridesAndSizes) {
  const Ending ending = program_of({"pages"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out,
              AllOf(HasSubstr("probe 0 strides [1.0, 1.0, 5.0, 3.0, 9.0, 5.0]\n"),
                    HasSubstr("probe 1 strides [1.0, 2.0, 5.0, 4.0, 9.0, 6.0]\n"),
                    HasSubstr("probe 1 sizes [[0.0], [1.0, 1.0]]\n"), HasSubstr("probe 0 shares [2.0]\n"),
                    HasSubstr("probe 1 shares [2.0, 2.0]\n")));
}

TEST_F(C10d, ThePagesProgramTrains) {
  const std::string page = text_in(source("docs/python.md"));
  const std::size_t begin = page.find("```python\nimport torch\nimport torch.distributed") + 10;
  std::ofstream(folder() / "train.py") << page.substr(begin, page.find("```", begin) - begin);
  const Ending ending = job(2, {folder() / "train.py"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, ContainsRegex("^loss [0-9.]+\n$"));
}

TEST_F(C10d, DefaultGroupsComeOneAfterAnother) { expect_each_says({"again"}, "sum [4.0, 4.0, 4.0]"); }

TEST_F(C10d, LivesBesideHorovodsInterface) {
  const Ending ending = program_of({"beside_horovods"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(ending.out, "probe - after [8.0, 8.0]\nprobe - after [8.0, 8.0]\n");
}

TEST_F(C10d, ProcessesThatAProgramSpawnsMeetThroughItsStore) {
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  for (const std::string address : {"127.0.0.1", static_cast<const char*>(host)}) {
    const Ending ending = start({python(), source("tests/python/c10d_programs.py"), "spawn", address},
                                variables({{"MASTER_PORT", std::to_string(another_port())}}))
                              .finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    for (const char* const line : {"probe 0 sum 3.0\n", "probe 1 sum 3.0\n", "probe 2 sum 3.0\n"})
      EXPECT_THAT(ending.out, HasSubstr(line)) << address << ending.err;
  }
}

TEST_F(C10d, AFileMayBeTheMeetingPlace) {
  std::vector<Process> ranks;
  for (const char* const rank : {"0", "1"}) {
    ranks.push_back(start(
        {python(), source("tests/python/c10d_programs.py"), "spawn_by_file", folder() / "meeting", rank},
        variables()));
  }
  for (const Ending& ending : finish(ranks)) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, HasSubstr(" sum 2.0\n"));
  }
}

TEST_F(C10d, TorchrunStartsIt) {
  const Ending ending =
      start({python(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--log-dir",
             folder() / "logs", source("tests/python/c10d_programs.py"), "again"},
            variables())
          .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("probe 1 sum [4.0, 4.0, 4.0]\n"));
}

TEST_F(C10d, ARankThatIsKilledIsNamed) {
  const Ending ending = program_of({"kill"}, 3).finish();
  EXPECT_EQ(ending.exit_code, 137);
  for (const char* const rank : {"0", "1"})
    EXPECT_THAT(ending.out,
                ContainsRegex("probe " + std::string(rank) +
                              " RuntimeError .*LockstepError: all_reduce #[0-9]+ .* rank 2 .pid [0-9]+. was "
                              "killed by signal 9"))
        << ending.err;
}

TEST_F(C10d, ARankThatStopsIsNamedAtTheTimeOut) {
  const Ending ending = program_of({"stop"}, 2, {{"LOCKSTEP_TIMEOUT", "1s"}}).finish();
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(ending.out,
              HasSubstr("probe 0 LockstepError timeout 1 all_reduce #0 (sum of f32 x 4) in group \"world\": "
                        "rank 1 did not arrive within 1 s"))
      << ending.err;
}

TEST_F(C10d, RanksThatDifferAreToldSo) {
  const Ending ending = program_of({"mismatch"}).finish();
  for (const char* const rank : {"0", "1"})
    EXPECT_THAT(ending.out,
                HasSubstr("probe " + std::string(rank) + " LockstepError mismatch None all_reduce #0"))
        << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("rank 0 called all_reduce (sum of f32 x 3) as #0, rank 1 called "
                                    "all_reduce (sum of f32 x 4) as #0"));
}

TEST_F(C10d, AWaitMayHaveALimitOfItsOwn) {
  const Ending ending = program_of({"late"}).finish();
  EXPECT_THAT(ending.out,
              AllOf(HasSubstr("probe 0 LockstepError timeout None all_reduce: timeout after 0.3 s; its "
                              "group is closed\n"),
                    HasSubstr("probe 1 LockstepError peer_lost 0 all_reduce #1 (sum of f32 x 4) in group "
                              "\"world\": rank 0 gave up all_reduce #0")))
      << ending.err;
}

TEST_F(C10d, AMonitoredBarrierNamesWhoIsMissing) {
  const Ending ending = program_of({"monitored"}).finish();
  EXPECT_THAT(
      ending.out,
      HasSubstr("probe 0 RuntimeError - - Rank 1 failed to pass monitoredBarrier in 0:00:00.300000\n"))
      << ending.err;
}

TEST_F(C10d, AFutureHasTheErrorOfItsOperation) {
  const Ending ending = program_of({"future"}).finish();
  EXPECT_THAT(ending.out,
              ContainsRegex("probe 0 RuntimeError .*LockstepError: all_reduce #0 .* rank 1 .pid [0-9]+. was "
                            "killed by signal 9"))
      << ending.err;
}

TEST_F(C10d, CtrlCIsHeardInAWait) {
  Process launched = program_of({"ctrl_c"});
  launched.await("probe 0 waits");
  launched.send(SIGINT);
  const Ending ending = launched.finish();
  EXPECT_THAT(ending.out, HasSubstr("probe 0 interrupted\n")) << ending.err;
  EXPECT_EQ(ending.exit_code, 130);
}

TEST_F(C10d, AProgramMayEndWithWorkUnderWay) {
  const Ending ending = program_of({"leaves_with_work_under_way"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(ending.out, "probe 0 leaves False\n");
}

TEST_F(C10d, WrongUseIsRefusedAndHarmsNothing) {
  const Ending ending = program_of({"wrong_use"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const char* const text :
       {"all_reduce does not support RedOpType.MAX on complex tensors",
        "tensors of torch.float8_e5m2 are not reduced; those of torch.uint8",
        "all_gather: 1 tensors for 2 ranks", "sparse tensors are taken by all_reduce alone; use to_dense()",
        "all_to_all: an output of 3 rows does not divide among 2 ranks",
        "all_reduce: 2 entries, where each rank has 1", "reduce_scatter: tensors of (16,) torch.float32",
        "all_to_all: what a rank keeps: tensors of (4,)",
        "all_to_all: an output of (2,) torch.float32 for an input",
        "all_gather: tensors of (1,) torch.float32 and of (2,)"}) {
    EXPECT_THAT(ending.out, HasSubstr("probe 0 ValueError - - " + std::string(text))) << ending.err;
  }
  EXPECT_THAT(ending.out, AllOf(HasSubstr("probe 0 goes on 2.0\n"), HasSubstr("probe 1 goes on 2.0\n")));
}

TEST_F(C10d, SparseTensorsAreFoundAlsoAfterUnevenMessages) {
  expect_each_says({"uneven"}, "sum [1.0, 1.0, 1.0]", 3);
}

TEST_F(C10d, AStoreServesGroupsOneAfterAnotherAndTimeOutsMayBeLong) {
  const Ending ending = start({python(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                               "2", "--log-dir", folder() / "logs", source("tests/python/c10d_programs.py"),
                               "patient", std::to_string(another_port())},
                              variables())
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("probe 1 waits for 10800000ms\n")) << ending.err;
}

TEST_F(C10d, GroupsAgainAndAgainLeaveNothingBehind) {
  const Ending ending = program_of({"cycles", "200"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  struct {
    int descriptors = 0, threads = 0, kib = 0;
  } before, after;
  const std::size_t begin = ending.out.find("probe 0 held ");
  ASSERT_NE(begin, std::string::npos) << ending.out << ending.err;
  ASSERT_EQ(std::sscanf(ending.out.c_str() + begin, "probe 0 held %d %d %d %d %d %d", &before.descriptors,
                        &before.threads, &before.kib, &after.descriptors, &after.threads, &after.kib),
            6);
  EXPECT_LE(after.descriptors, before.descriptors + 2);
  EXPECT_LE(after.threads, before.threads + 1);
  EXPECT_LE(after.kib, before.kib + 2048);
}

}  // namespace
}  // namespace lockstep::testing
