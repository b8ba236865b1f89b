// lockstep.torch under `lockstep run`, with the newest torch that is a peer: what it answers, beside a recording of the real
// Horovod's answers, and what it does when something is wrong.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/python/python_job.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class Python : public PythonJob {
 protected:
  void SetUp() override {
    PythonJob::SetUp();
    use_peer("torch");
  }
  void expect_right(const std::string& action, const Variables& more = {}) const {
    const Ending ending = job(2, {"torch_faults.py", action, folder().string()}, more).finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    for (const char* line : {"probe 0 right", "probe 1 right"})
      EXPECT_THAT(ending.out, HasSubstr(line)) << ending.err;
  }
};

class PythonAnswers : public Python, public ::testing::WithParamInterface<int> {};

TEST_P(PythonAnswers, AreHorovods) { expect_horovods_answers("torch", 221, GetParam()); }

INSTANTIATE_TEST_SUITE_P(Of, PythonAnswers, ::testing::Values(2, 4),
                         [](const auto& info) { return std::to_string(info.param) + "Ranks"; });

/// Tensors are on a GPU, which there is none of here: fake_gpu.py.
class PythonOnGpus : public Python {
 protected:
  void SetUp() override {
    Python::SetUp();
    use_fake_gpu();
  }
  /// But for those whose tensors are sparse, and one for torch.load() itself, which the made-up GPU does not have. Returns what
  /// was said.
  std::string answers_there(const Variables& more = {}) const {
    return answers("torch", 221, 2, on_fake_gpu(more), 5).err;
  }
};

TEST_F(PythonOnGpus, AnswersByNcclAreHorovods) {
  EXPECT_THAT(answers_there(), Not(ContainsRegex(through_main_memory)));
}
TEST_F(PythonOnGpus, AnswersOfRanksThatShareOneAreHorovods) {
  EXPECT_THAT(answers_there({{"STANDIN_ONE_GPU", "1"}}), Not(ContainsRegex(through_main_memory)));
}
/// The core copies to main memory and back.
TEST_F(PythonOnGpus, AnswersWithoutNcclAreHorovods) {
  EXPECT_THAT(answers_there({{"LOCKSTEP_NCCL_LIBRARY", "/nowhere/libnccl.so.2"}}),
              ContainsRegex(std::string(through_main_memory) + ".*cannot load /nowhere/libnccl.so.2"));
}

TEST_F(PythonOnGpus, SetsThatOverlapDoNotWaitForEachOther) {
  const Ending ending = job(4, {"torch_faults.py", "sets_that_overlap"},
                            on_fake_gpu({{"STANDIN_ONE_GPU", "1"}, {"LOCKSTEP_TIMEOUT", "60s"}}))
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const char* line : {"probe 0 right\n", "probe 1 right\n", "probe 2 right\n", "probe 3 right\n"})
    EXPECT_THAT(ending.out, HasSubstr(line)) << ending.err;
  EXPECT_THAT(ending.err, Not(ContainsRegex(through_main_memory)));
}

TEST_F(PythonOnGpus, ARankThatDiesIsNamed) {
  const Ending ending = job(2, {"torch_faults.py", "kill"}, on_fake_gpu()).finish();
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(ending.out, ContainsRegex("probe 0 HorovodInternalError peer_lost 1 .*killed by signal 9"))
      << ending.err;
}

TEST_F(Python, HorovodsOwnNamesAreLocksteps) {
  const std::string text =
      "import torch, horovod.torch as hvd, lockstep.torch, horovod.torch.mpi_ops, horovod.common.exceptions\n"
      "from horovod.torch.elastic import TorchState\n"
      "hvd.init()\n"
      "assert hvd is lockstep.torch and horovod.torch.mpi_ops is lockstep.torch.mpi_ops\n"
      "assert horovod.common.exceptions.HorovodInternalError is hvd.HorovodInternalError\n"
      "assert hvd.__spec__.name == 'lockstep.torch'\n"
      "import horovod, lockstep.runner\n"
      "assert horovod.run is lockstep.runner.run\n"
      "print('sum', hvd.allreduce(torch.ones(1), op=hvd.Sum).item())\n";
  const Ending ending =
      start({testing::program("lockstep"), "run", "--no-prefix", "-np", "2", python(), "-c", text},
            variables({{"PYTHONPATH", source("python") + ":" + source("python/horovod_names")}}))
          .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(ending.out, "sum 2.0\nsum 2.0\n");
}

TEST_F(Python, ThePagesProgramTrains) {
  const std::string page = text_in(source("docs/python.md"));
  const std::size_t begin = page.find("```python\nimport torch\n") + 10;
  std::ofstream(folder() / "train.py") << page.substr(begin, page.find("```", begin) - begin);
  const Ending ending = job(2, {folder() / "train.py"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out,
              ContainsRegex("^epoch 0: loss [0-9.]+\nepoch 1: loss [0-9.]+\nepoch 2: loss [0-9.]+\n$"));
}

TEST_F(Python, HorovodsNamesAreRefusedBesideIt) {
  const std::filesystem::path real = folder() / "site/horovod-0.28.1.dist-info";
  std::filesystem::create_directories(real);
  std::ofstream(real / "METADATA") << "Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n";
  const Ending ending =
      start({python(), "-c", "import horovod.torch"},
            variables({{"PYTHONPATH", source("python") + ":" + source("python/horovod_names") + ":" +
                                          (folder() / "site").string()}}))
          .finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, AllOf(HasSubstr("ImportError: lockstep-horovod takes the place of Horovod, and "
                                          "Horovod 0.28.1 is installed, too"),
                                HasSubstr("pip uninstall")));
}

TEST_F(Python, ARankThatIsKilledIsNamed) {
  const Ending ending = job(2, {"torch_faults.py", "kill"}).finish();
  EXPECT_EQ(ending.exit_code, 128 + SIGKILL);
  EXPECT_THAT(ending.out,
              ContainsRegex("probe 0 HorovodInternalError peer_lost 1 .*rank 1 .*was killed by signal 9"));
}

TEST_F(Python, ARankWithoutMemoryForAResultIsNamed) {
  const Ending ending = job(2, {"torch_faults.py", "no_memory_for_a_result"}).finish();
  EXPECT_THAT(
      ending.out,
      ContainsRegex("probe 0 .*no memory for a result of 32 bytes.* MemoryError.'32 bytes are too many'"));
  EXPECT_THAT(ending.out, ContainsRegex("probe 1 .*rank 0.* None"));
}

TEST_F(Python, ARankThatCrashesSaysInWhichLine) {
  std::ofstream(folder() / "crash.py") << "import ctypes, lockstep.torch as hvd\n"
                                          "hvd.init()\n"
                                          "def read_nothing():\n"
                                          "    ctypes.string_at(0)\n"
                                          "if hvd.rank() == 1:\n"
                                          "    read_nothing()\n"
                                          "hvd.barrier()\n";
  const Ending ending = job(2, {folder() / "crash.py"}).finish();
  EXPECT_EQ(ending.exit_code, 128 + SIGSEGV);
  EXPECT_THAT(ending.err,
              AllOf(ContainsRegex("rank 1 .* was killed by signal 11 \\(SIGSEGV\\)"),
                    ContainsRegex(
                        "its last lines on stderr:\n(    .*\n)*    .*crash.py\", line 4 in read_nothing\n")));
}

TEST_F(Python, ARankThatLeavesIsNamed) {
  const Ending ending = job(2, {"torch_faults.py", "leave"}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(
      ending.out,
      ContainsRegex(
          "probe 0 HorovodInternalError peer_lost 1 .*rank 1 left the job while others still needed it"));
}

TEST_F(Python, ARankThatDoesNotComeIsNamedWithTheTensor) {
  const Ending ending = job(2, {"torch_faults.py", "late"}, {{"LOCKSTEP_TIMEOUT", "1s"}}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, ContainsRegex("probe 0 HorovodInternalError timeout 1 all_reduce "
                                        "\"allreduce.loss\" .*was submitted by rank 0, but not by rank 1"));
}

TEST_F(Python, ParametersThatDifferAreNamed) {
  const Ending ending =
      job(2, {"torch_faults.py", "parameters_that_differ"}, {{"LOCKSTEP_TIMEOUT", "1s"}}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out,
              ContainsRegex("probe 0 HorovodInternalError .*DistributedOptimizer.0 \\(bias to weight\\)"));
}

TEST_F(Python, CtrlCEndsAWait) {
  Process ranks = job(2, {"torch_faults.py", "wait_for_ever"});
  ranks.await("probe 0 waits");
  ranks.await("probe 1 waits");
  ranks.send(SIGINT);
  const Ending ending = ranks.finish();
  EXPECT_EQ(ending.exit_code, 128 + SIGINT);
  EXPECT_THAT(ending.err, HasSubstr("KeyboardInterrupt"));
}

TEST_F(Python, TensorsMayBeDroppedWhileTheyAreUnderWay) { expect_right("dropped_tensors"); }
TEST_F(Python, AdasumIsThere) { expect_right("adasum"); }
TEST_F(Python, GradientsAreThereAtOnce) { expect_right("gradients_are_there_at_once"); }

TEST_F(Python, AFunctionRunsOnSeveralRanks) {
  std::ofstream(folder() / "program.py")
      << "import lockstep.runner, horovod.runner, sys\n"
         "from horovod.runner.util.threads import execute_function_multithreaded, in_thread\n"
         "from horovod.common.util import is_version_greater_equal_than, split_list\n"
         "def square(number, plus=0):\n"
         "    import lockstep.torch as hvd\n"
         "    hvd.init()\n"
         "    return hvd.rank(), hvd.size(), number * number + plus\n"
         "def fail():\n"
         "    raise ValueError('on purpose')\n"
         "if __name__ == '__main__':\n"
         "    from program import fail, square\n"
         "    print(horovod.runner.run(square, args=(3,), kwargs={'plus': 1}, num_proc=2))\n"
         "    assert horovod.runner.run is lockstep.runner.run\n"
         "    for wrong in (dict(hosts='a:1', hostfile='b'), dict(use_gloo=True, use_mpi=True)):\n"
         "        try: horovod.runner.run(square, args=(3,), **wrong)\n"
         "        except ValueError as error: print('ValueError', error)\n"
         "    try: horovod.runner.run(fail, num_proc=2)\n"
         "    except RuntimeError as error: print('RuntimeError', error)\n"
         "    assert is_version_greater_equal_than('2.15.0rc1', '2.15.0') and not "
         "is_version_greater_equal_than('2.9.1', '2.15.0')\n"
         "    assert split_list([1, 2, 3, 4, 5], 2) == [[1, 2, 3], [4, 5]]\n"
         "    assert execute_function_multithreaded(pow, [(2, 3), (3, 2)]) == {0: 8, 1: 9}\n"
         "    in_thread(print, ('in a thread',)).join()\n";
  const Variables more = {
      {"PYTHONPATH", source("python") + ":" + source("python/horovod_names")},
      {"PATH", std::string(std::getenv("LOCKSTEP_BINARY_DIR")) + "/bin:" + std::getenv("PATH")}};
  const Ending ending = start({python(), folder() / "program.py"}, variables(more)).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(ending.out,
            "[(0, 2, 10), (1, 2, 10)]\n"
            "ValueError run(): hosts and hostfile say the same; give one of them\n"
            "ValueError run(): use_gloo and use_mpi are both True; neither is needed\n"
            "RuntimeError run(): the job ended with 1, and without a result of rank 0, 1\n"
            "in a thread\n");
  EXPECT_THAT(ending.err, HasSubstr("ValueError: on purpose"));
}

TEST_F(Python, AStepNeedsNoBackward) { expect_right("step_without_backward"); }
TEST_F(Python, ATimelineIsOfWhatIsBetweenItsBeginningAndItsEnd) {
  const Ending ending = job(2, {"torch_faults.py", "timeline", folder().string()}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const char* rank : {"probe 0", "probe 1"}) {
    EXPECT_THAT(ending.out, HasSubstr(rank + std::string(" right")));
    EXPECT_THAT(ending.out,
                HasSubstr(rank + std::string(" ValueError invalid_argument None no timeline was started")));
    EXPECT_THAT(
        ending.out,
        ContainsRegex(rank + std::string(" ValueError invalid_argument None [^\n]*there is no folder ")));
    EXPECT_THAT(
        ending.out,
        ContainsRegex(rank + std::string(" ValueError invalid_argument None a timeline was started before")));
  }
}
TEST_F(Python, SeveralThreadsCallAtOnce) { expect_right("threads"); }
TEST_F(Python, WorkersOfALoaderAreForkedAfterwards) { expect_right("workers"); }
TEST_F(Python, InitAndShutdownMayBeCalledTwice) { expect_right("init_twice"); }
TEST_F(Python, GradientsAreAddedUp) { expect_right("gradients_while_under_way"); }
TEST_F(Python, SchedulersAndHeldGroupsStayTheOptimizers) { expect_right("schedulers"); }
TEST_F(Python, AFailedStepLeavesNothing) { expect_right("after_a_failure"); }
TEST_F(Python, OddTensorsAndNamesAreTaken) { expect_right("odd_tensors"); }
TEST_F(Python, MemoryThatIsRegisteredIsNotCopied) {
  expect_right("registered_memory", {{"LOCKSTEP_ARENA_BYTES", "64MiB"}});
}
TEST_F(Python, GradientsLieInTheArena) { expect_right("gradients_in_the_arena"); }
// Three blocks of 16 MiB, freed together, are more than glibc keeps by itself.
TEST_F(Python, MemoryThatTorchFreesIsKeptUnlessTheProgramSaysOtherwise) {
  for (const auto& [more, said] : std::vector<std::pair<Variables, std::string>>{
           {{}, "few"},
           {{{"MALLOC_TRIM_THRESHOLD_", "131072"}}, "many"},
           {{{"MALLOC_MMAP_THRESHOLD_", "131072"}}, "many"},
           {{{"GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072"}}, "many"}}) {
    const Ending ending = job(2, {"torch_faults.py", "freed_memory"}, more).finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    for (const char* rank : {"0", "1"})
      EXPECT_THAT(ending.out, HasSubstr("probe " + std::string(rank) + " pages " + said)) << ending.err;
  }
}
TEST_F(Python, BatchNormIsThatOfOneProcess) { expect_right("batch_norm"); }

TEST_F(Python, TrainingGoesOnInTheNextWorldAfterACollectiveHasFailed) { expect_right("elastic"); }

TEST_F(Python, TrainingGoesOnWithoutRanksThatDieAndWithThemWhenTheyAreBack) {
  const Ending ending =
      job(3, {"torch_faults.py", "ranks_that_come_and_go"}, {}, {"--restart", "all"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.out, "probe"), SizeIs(3)) << ending.out << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("right 3 3\n"));
  EXPECT_THAT(ending.err, AllOf(HasSubstr("SIGKILL); it is started again, restart 1 of 3"),
                                HasSubstr("rank 1 is in the job again")));
}

TEST_F(Python, ARankThatBeginsAloneTrainsWithThoseThatComeLater) {
  std::ofstream(folder() / "late.py") << "import os, runpy, signal, sys, time\n"
                                         "if os.environ['RANK'] == '1':\n"
                                         "    if os.environ['LOCKSTEP_INCARNATION'] == '0':\n"
                                         "        os.kill(os.getpid(), signal.SIGKILL)\n"
                                         "    time.sleep(5)\n"
                                         "sys.path.insert(0, os.path.dirname(sys.argv[1]))\n"
                                         "sys.argv = sys.argv[1:]\n"
                                         "runpy.run_path(sys.argv[0], run_name='__main__')\n";
  const Ending ending = job(2, {folder() / "late.py", source("tests/python/torch_faults.py"), "begins_alone"},
                            {}, {"--restart", "all"})
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.out, "probe"), SizeIs(2)) << ending.out << ending.err;
}

TEST_F(Python, TheCommandWithoutALauncherSaysSo) {
  const Ending ending = start({python(), "-c", "from lockstep import command; command.main()"},
                              variables({{"PATH", "/nowhere"}}))
                            .finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_EQ(ending.err, "lockstep: cannot start " + source("python/lockstep/bin/lockstep") +
                            ": No such file or directory; install the package again (pip install "
                            "--force-reinstall lockstep), or put a launcher's folder into PATH\n");
}

TEST_F(Python, SamplersDealOutOneEpoch) { expect_right("samplers"); }

TEST_F(Python, RowsThatGoToNobodyHaveNoGradient) { expect_right("parts_to_others"); }

TEST_F(Python, AnInterpreterEndsWithWorkUnderWay) {
  for (const char* action : {"dropped_handles", "end_under_way"}) {
    const Ending ending = job(2, {"torch_faults.py", action}).finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(lines_with(ending.out, "probe"), SizeIs(2));
    EXPECT_THAT(lines_with(ending.err, "lockstep["), IsEmpty()) << ending.err;
  }
}

TEST_F(Python, AnExceptionInAHookIsTheProgramsOwn) {
  const Ending ending = job(2, {"torch_faults.py", "exception_in_a_hook"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("probe 1 ValueError - - the hook's own mistake"));
}

TEST_F(Python, WorldsThatComeAndGoLeaveNothing) {
  const Ending ending = job(2, {"torch_faults.py", "several_worlds", "30"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  int descriptors[2] = {}, threads[2] = {}, tasks[2] = {}, kib[2] = {};
  const std::size_t begin = ending.out.find("probe 1 held");
  ASSERT_NE(begin, std::string::npos) << ending.out << ending.err;
  ASSERT_EQ(
      std::sscanf(ending.out.c_str() + begin, "probe 1 held %d %d %d %d and %d %d %d %d", &descriptors[0],
                  &threads[0], &tasks[0], &kib[0], &descriptors[1], &threads[1], &tasks[1], &kib[1]),
      8);
  EXPECT_LE(descriptors[1], descriptors[0] + 6) << "what one world more has, which is there this time";
  EXPECT_EQ(threads[1], threads[0]);
  EXPECT_LE(tasks[1], tasks[0] + 2);
  EXPECT_LE(kib[1], kib[0] + 6 * 1024);
}

TEST_F(Python, AMissingLibraryIsNamed) {
  const Ending ending = start({python(), "-c", "import lockstep.torch"},
                              variables({{"LOCKSTEP_C_LIBRARY", "/nowhere/liblockstep_c.so"}}))
                            .finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, AllOf(HasSubstr("ImportError: lockstep: cannot load /nowhere/liblockstep_c.so"),
                                HasSubstr("LOCKSTEP_C_LIBRARY says where it is")));
}

TEST_F(Python, WithoutTorchItSaysSo) {
  const Ending ending =
      start({"/usr/bin/python3", "-S", "-c", "import lockstep.torch"}, variables()).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err,
              HasSubstr("ImportError: lockstep.torch needs torch 2.0 or newer, which is not installed"));
}

TEST_F(Python, AloneItIsAWorldOfOne) {
  const Ending ending = start({python(), "-c",
                               "import torch, lockstep.torch as hvd\nhvd.init()\n"
                               "print(hvd.size(), hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist())"},
                              variables())
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("1 [1.0, 1.0]"));
}

}  // namespace
}  // namespace lockstep::testing
