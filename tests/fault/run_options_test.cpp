// The options that users of torchrun and horovodrun have in their scripts, given to `lockstep run`.
#include <filesystem>
#include <fstream>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class RunOptions : public JobTest {
 protected:
  Ending launch(std::vector<std::string> options, const std::vector<std::string>& command,
                const Variables& variables = {}) const {
    options.insert(options.begin(), {program("lockstep"), "run"});
    options.insert(options.end(), command.begin(), command.end());
    return start(options, variables).finish();
  }
  /// The one folder in `folder`, which a run has made.
  static fs::path only_one_in(const fs::path& folder) {
    const std::vector<fs::path> found(fs::directory_iterator(folder), {});
    EXPECT_THAT(found, SizeIs(1));
    return found.empty() ? fs::path() : found.front();
  }
  static std::vector<std::string> talk() {
    return {"/bin/sh", "-c", "echo out of $RANK; echo err of $RANK >&2"};
  }
};

TEST_F(RunOptions, OfTorchrunSayHowManyRanksWithEitherKindOfDash) {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--standalone", "--nproc-per-node", "2"},
        {"--nproc_per_node=2", "--nnodes=1"},
        {"--nnodes", "1:1", "--nproc_per_node", "2", "--node_rank=0", "--rdzv_backend=c10d",
         "--role=trainer"}}) {
    const Ending ending = launch(options, {"/bin/sh", "-c", "echo $RANK of $WORLD_SIZE"});
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, AllOf(HasSubstr("[0] 0 of 2\n"), HasSubstr("[1] 1 of 2\n")));
  }
  EXPECT_EQ(launch({"--standalone"}, {"/bin/sh", "-c", "echo $WORLD_SIZE"}).out, "[0] 1\n");
}

TEST_F(RunOptions, AutoIsARankForEachCoreWhereThereIsNoGpu) {
  const Ending cores =
      launch({"--nproc-per-node", "cpu"}, {"/bin/sh", "-c", "echo $LOCKSTEP_CORES of $WORLD_SIZE"});
  const Ending automatic =
      launch({"--nproc-per-node", "auto"}, {"/bin/sh", "-c", "echo $LOCKSTEP_CORES of $WORLD_SIZE"},
             {{"CUDA_VISIBLE_DEVICES", ""}});
  for (const Ending& ending : {cores, automatic}) {
    int cores_of = 0, ranks = 0;
    ASSERT_EQ(std::sscanf(ending.out.c_str(), "[%*d] %d of %d", &cores_of, &ranks), 2)
        << ending.out << ending.err;
    EXPECT_EQ(cores_of, ranks);
  }
  const Ending gpus = launch({"--nproc-per-node", "gpu"}, {"true"}, {{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(gpus.exit_code, 2);
  EXPECT_THAT(gpus.err,
              HasSubstr("--nproc-per-node gpu: there is no GPU here, or CUDA_VISIBLE_DEVICES hides it"));
}

TEST_F(RunOptions, TellRanksWhatTorchrunTells) {
  const std::string say = "echo $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE";
  const Ending ending = launch({"-np", "1", "--role", "trainer"}, {"/bin/sh", "-c", say});
  EXPECT_EQ(ending.out, "[0] trainer 0/1 0/1\n");
  EXPECT_EQ(launch({"-np", "1"}, {"/bin/sh", "-c", "echo $ROLE_NAME"}).out, "[0] default\n");
}

TEST_F(RunOptions, WithoutAMeaningAreAcceptedAndSaidOnce) {
  const Ending ending =
      launch({"-np", "2", "--monitor_interval=5", "--start-method", "spawn", "--use-env"}, {"true"});
  EXPECT_EQ(ending.exit_code, 0);
  const auto said = lines_with(ending.err, "lockstep run: without a meaning here: ");
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_THAT(said.front(),
              AllOf(HasSubstr("--monitor-interval"), HasSubstr("--start-method"), HasSubstr("--use-env")));
}

TEST_F(RunOptions, RunPythonAsTorchrunDoes) {
  std::ofstream(folder() / "module_of_a_test.py") << "import sys\nprint('args', sys.argv[1:], __name__)\n";
  const Ending module =
      launch({"-np", "1", "-m", "--wdir", folder().string()}, {"module_of_a_test", "--x", "1"});
  EXPECT_EQ(module.exit_code, 0) << module.err;
  EXPECT_EQ(module.out, "[0] args ['--x', '1'] __main__\n");
  const Ending path = launch({"-np", "1", "--run-path"}, {(folder() / "module_of_a_test.py").string(), "2"});
  EXPECT_EQ(path.out, "[0] args ['2'] __main__\n") << path.err;
  const Ending both = launch({"-np", "1", "-m", "--no-python"}, {"true"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("-m, --run-path and --no-python say different things"));
}

TEST_F(RunOptions, TeeKeepsWhatIsShown) {
  const fs::path logs = folder() / "logs";
  const Ending ending = launch({"-np", "2", "--log-dir", logs.string(), "--rdzv-id", "job7"}, talk());
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, AllOf(HasSubstr("[0] out of 0\n"), HasSubstr("[1] out of 1\n")));
  const fs::path run = only_one_in(logs);
  EXPECT_THAT(run.filename().string(), ContainsRegex("^job7_[0-9a-f]{16}$"));
  EXPECT_THAT(ending.err, HasSubstr("lockstep run: what ranks print is in " + run.string() + "\n"));
  for (const char* rank : {"0", "1"}) {
    EXPECT_EQ(text_in(run / "attempt_0" / rank / "stdout.log"), std::string("out of ") + rank + "\n");
    EXPECT_EQ(text_in(run / "attempt_0" / rank / "stderr.log"), std::string("err of ") + rank + "\n");
  }
}

TEST_F(RunOptions, RedirectsAreNotShown) {
  const fs::path logs = folder() / "logs";
  const Ending ending =
      launch({"-np", "2", "--log-dir", logs.string(), "-r", "0:3,1:1", "-t", "1:2"}, talk());
  EXPECT_EQ(ending.out, "");
  EXPECT_THAT(ending.err, AllOf(HasSubstr("[1] err of 1\n"), Not(HasSubstr("[0] "))));
  const fs::path attempt = only_one_in(logs) / "attempt_0";
  EXPECT_EQ(text_in(attempt / "0" / "stdout.log"), "out of 0\n");
  EXPECT_EQ(text_in(attempt / "0" / "stderr.log"), "err of 0\n");
  EXPECT_EQ(text_in(attempt / "1" / "stdout.log"), "out of 1\n");
  EXPECT_EQ(text_in(attempt / "1" / "stderr.log"), "err of 1\n");
}

TEST_F(RunOptions, EachRestartHasItsFiles) {
  const fs::path logs = folder() / "logs", one = folder() / "one";
  const std::vector<std::string> command = {
      "/bin/sh", "-c", "echo start $TORCHELASTIC_RESTART_COUNT; exit $((1 - TORCHELASTIC_RESTART_COUNT))"};
  EXPECT_EQ(launch({"-np", "1", "--max-restarts", "1", "--log-dir", logs.string()}, command).exit_code, 0);
  const fs::path run = only_one_in(logs);
  EXPECT_EQ(text_in(run / "attempt_0" / "0" / "stdout.log"), "start 0\n");
  EXPECT_EQ(text_in(run / "attempt_1" / "0" / "stdout.log"), "start 1\n");
  for (int time = 0; time < 2; ++time)  // the second run begins them anew
    EXPECT_EQ(
        launch({"-np", "1", "--max-restarts", "1", "--output-filename", one.string()}, command).exit_code, 0);
  EXPECT_EQ(text_in(one / "rank.0" / "stdout"), "start 0\nstart 1\n");
}

TEST_F(RunOptions, OfHorovodrunHaveFilesForEachRank) {
  const fs::path out = folder() / "out";
  const Ending ending = launch({"-np", "11", "--output-filename", out.string()}, talk());
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(text_in(out / "rank.03" / "stdout"), "out of 3\n");
  EXPECT_EQ(text_in(out / "rank.10" / "stderr"), "err of 10\n");
  EXPECT_THAT(lines_with(ending.out, "["), SizeIs(11));
}

TEST_F(RunOptions, TheFilterShowsSomeRanksAndKeepsTheReportOfTheOthers) {
  const Ending ending = launch({"-np", "3", "--local-ranks-filter", "0,2"},
                               {"/bin/sh", "-c", "echo $RANK; [ $RANK != 1 ] || { echo oh >&2; exit 5; }"});
  EXPECT_EQ(ending.exit_code, 5);
  EXPECT_THAT(ending.out, AllOf(HasSubstr("[0] 0"), HasSubstr("[2] 2"), Not(HasSubstr("[1]"))));
  EXPECT_THAT(ending.err, AllOf(Not(HasSubstr("[1] oh")), HasSubstr("    oh\n")));
}

TEST_F(RunOptions, AFilterThatShowsNobodySaysSo) {
  const Ending ending = launch({"-np", "2", "--local-ranks-filter", "2,9"}, talk());
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, Not(HasSubstr("out of")));
  EXPECT_THAT(ending.err,
              HasSubstr("lockstep run: --local-ranks-filter has none of the local ranks, which are "
                        "0 to 1: nothing that they print is shown\n"));
}

TEST_F(RunOptions, BinaryOutputIsInFilesAsItIs) {
  const fs::path out = folder() / "out";
  const Ending ending = launch({"-np", "1", "--output-filename", out.string()},
                               {"/bin/sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' '\\377'"});
  EXPECT_EQ(ending.exit_code, 0);
  EXPECT_EQ(text_in(out / "rank.0" / "stdout"), std::string(3'000'000, '\377'));
}

TEST_F(RunOptions, AFolderThatCannotBeWrittenIsOneWarningAndTrainingGoesOn) {
  std::ofstream(folder() / "rank.1") << "in the way\n";
  const Ending ending = launch({"-np", "2", "--output-filename", folder().string()}, talk());
  EXPECT_EQ(ending.exit_code, 0);
  EXPECT_THAT(lines_with(ending.err, "lockstep run: cannot write to "), SizeIs(1));
  EXPECT_THAT(ending.err, HasSubstr("is shown, and in no file\n"));
  EXPECT_THAT(ending.out, AllOf(HasSubstr("[0] out of 0"), HasSubstr("[1] out of 1")));
}

TEST_F(RunOptions, AFolderThatIsNoneIsRefusedBeforeAnythingStarts) {
  const std::string file = (folder() / "file").string(), started = (folder() / "started").string();
  std::ofstream(file) << "in the way\n";
  const Ending ending = launch({"-np", "2", "-r", "3", "--log-dir", file}, {"touch", started});
  EXPECT_EQ(ending.exit_code, 2);
  EXPECT_THAT(ending.err, HasSubstr("cannot make the folder " + file + " for the ranks' output: "));
  EXPECT_FALSE(fs::exists(started));
}

TEST_F(RunOptions, WhatCannotBePrintedIsSaid) {
  for (const char* const words :
       {"--help", "--version", "run --help", "algorithms ring", "pipelines", "simulate --help"}) {
    const Ending ending =
        start({"/bin/sh", "-c", program("lockstep") + " " + words + " >/dev/full"}).finish();
    EXPECT_EQ(ending.exit_code, 1) << words;
    EXPECT_THAT(ending.err, HasSubstr("lockstep: stdout cannot be written")) << words;
  }
}

TEST_F(RunOptions, AFileThatCannotGrowIsOneWarningAndNothingIsLost) {
  const fs::path out = folder() / "out";
  const std::string command = "ulimit -f 1000; exec " + program("lockstep") +
                              " run -np 1 --output-filename " + out.string() + " seq 200000";
  const Ending ending = start({"/bin/bash", "-c", command}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.err, "lockstep run: cannot write to "), SizeIs(1)) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("[0] 200000\n"));
}

TEST_F(RunOptions, DryRunStartsNothing) {
  const std::string started = (folder() / "started").string();
  const Ending here = launch({"--dry-run", "-np", "3", "-x", "A=b c"}, {"touch", started});
  EXPECT_EQ(here.exit_code, 0);
  EXPECT_THAT(here.out, AllOf(HasSubstr("would start ranks 0-2 here"), HasSubstr("touch " + started),
                              HasSubstr("with A='b c'")));
  const Ending hosts =
      launch({"--dry-run", "-H", "server1:2,server2:1", "--ssh", "ssh -p 23"}, {"touch", started, "a b"});
  EXPECT_EQ(hosts.exit_code, 0);
  EXPECT_THAT(hosts.out,
              AllOf(HasSubstr("would start 3 ranks on 2 hosts:"),
                    ContainsRegex("server1  ranks 0-1, by ssh -p 23 .*server1 'exec .*lockstep agent'"),
                    HasSubstr("server2  rank 2, by "), HasSubstr("touch " + started + " 'a b'")));
  EXPECT_EQ(launch({"--dry-run", "-np", "3"}, {"/no/program"}).exit_code, 127);
  EXPECT_EQ(launch({"--dry-run", "-np", "0"}, {"true"}).exit_code, 2);
  EXPECT_FALSE(fs::exists(started));
}

TEST_F(RunOptions, CheckBuildSaysWhatIsThere) {
  const Ending ending = launch({"--check-build"}, {});
  EXPECT_EQ(ending.exit_code, 0);
  EXPECT_THAT(ending.out, AllOf(HasSubstr("Available Frameworks:\n    [X] plain C++\n"),
                                HasSubstr("    [X] shared memory\n"),
                                HasSubstr("    [X] NCCL, where it is installed\n")));
}

TEST_F(RunOptions, ThatContradictOneAnotherAreRefused) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> all = {
      {{"-np", "2", "--nproc-per-node", "2"}, "pass one of them"},
      {{"--nproc-per-node", "many"}, "--nproc-per-node=\"many\" is not a whole number"},
      {{"--standalone", "-H", "a:1"}, "--standalone means this host alone"},
      {{"--node-rank", "1", "-np", "1"}, "--node-rank=\"1\" is not a whole number"},
      {{"-np", "1", "-r", "4"}, "--redirects=\"4\" is none of 0 (nothing), 1 (stdout)"},
      {{"-np", "1", "-t", "0:1,0:2"}, "--tee has local rank 0 twice"},
      {{"-np", "1", "-t", "0:1:2"}, "--tee: \"0:1:2\" is not LOCAL_RANK:NUMBER"},
      {{"-np", "1", "--local-ranks-filter", "0,x"}, "--local-ranks-filter=\"x\" is not a whole number"},
      {{"-np", "1", "--log-dir", "a", "--output-filename", "b"}, "pass one or the others"},
      {{"-np", "1", "--log-dir", "a", "--rdzv-id", "../b"}, "has a / in it"},
      {{"-np", "1", "--nproc-per-node"}, "--nproc-per-node"},
      {{"-np", "1", "--engine", "ucx"},
       "--engine is \"ucx\"; there are native (also called gloo and tcp), mpi, and nccl for GPUs"},
      {{"-np", "1", "--engine", "mpi"}, "the engine mpi takes a job that the MPI's own launcher has started"},
  };
  for (const auto& [options, text] : all) {
    const Ending ending = launch(options, {"true"});
    EXPECT_EQ(ending.exit_code, 2) << text;
    EXPECT_THAT(ending.err, HasSubstr(text));
  }
}

}  // namespace
}  // namespace lockstep::testing
