// A program that starts its own ranks with spawn(): they are ranks as any others, their failure is an error
// of the program, and what cannot work is refused before anything is started.
#include <csignal>
#include <fstream>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

class Spawn : public JobTest {
 protected:
  Ending run_spawner(std::vector<std::string> words, const Variables& more = {}) const {
    words.insert(words.begin(), program("probe_spawn"));
    return start(words, more).finish();
  }
  /// The error that the one spawn() threw, which does not end the program.
  static std::string error_of(const Ending& ending) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    const auto errors = lines_with(ending.out, "spawn code=");
    EXPECT_THAT(errors, SizeIs(1)) << ending.out;
    return errors.empty() ? "" : errors.front();
  }
};

TEST_F(Spawn, RanksHaveArgumentsFilesAndAWorld) {
  const Ending ending = run_spawner({"3"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.out, "["),
              UnorderedElementsAre("[0] hello from rank 0 of 3: sum 3", "[1] hello from rank 1 of 3: sum 3",
                                   "[2] hello from rank 2 of 3: sum 3"));
  EXPECT_THAT(ending.out, HasSubstr("the ranks wrote 9 bytes into this process's file\n"));
}

TEST_F(Spawn, WhatTheProgramHadNotWrittenIsWrittenOnceAndOnlyTheProgramHasAnEnd) {
  const Ending ending = run_spawner({"2"});
  EXPECT_THAT(lines_with(ending.out, "not written yet"), SizeIs(1)) << ending.out;
  EXPECT_THAT(ending.out, HasSubstr("the end of 1 process\n"));
  EXPECT_THAT(lines_with(ending.out, "the end of"), SizeIs(1)) << ending.out;
}

TEST_F(Spawn, WithoutJoiningLeavesItsCallerAlone) {
  const Ending ending = run_spawner({"3:leave,9"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("meanwhile: alarms 1, own child 5\njoined\n"));
}

TEST_F(Spawn, WithoutJoiningSaysAFailureWhenItIsJoined) {
  const Ending ending = run_spawner({"3:leave,1"});
  EXPECT_THAT(ending.out, HasSubstr("meanwhile: alarms 1, own child 5\n"));
  EXPECT_THAT(error_of(ending),
              AllOf(StartsWith("spawn code=peer_lost peer=1 "), HasSubstr("ended with exit code 1")));
}

TEST_F(Spawn, WhoseHandleGoesEndsItsRanks) {
  const Ending ending = run_spawner({"2:drop,0"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("they run\n"));
}

TEST_F(Spawn, CanBeRepeatedAlsoAfterAFailure) {
  const Ending ending = run_spawner({"2", "2:throw,0", "1"});
  EXPECT_THAT(error_of(ending), HasSubstr("code=peer_lost peer=0"));
  EXPECT_THAT(lines_with(ending.out, "[0] hello"), SizeIs(2)) << ending.out;
}

TEST_F(Spawn, AnExceptionIsReportedWithItsText) {
  const Ending ending = run_spawner({"3:throw,1"});
  EXPECT_THAT(error_of(ending),
              ContainsRegex("^spawn code=peer_lost peer=1 text=spawn: rank 1 \\(pid [0-9]+\\) "
                            "ended with exit code 1"));
  EXPECT_THAT(ending.out, HasSubstr("\n    rank 1 has had enough\n"));
  EXPECT_THAT(lines_with(ending.err, "[1] "),
              AllOf(SizeIs(1), Each(StartsWith("[1] rank 1 has had enough"))));
}

TEST_F(Spawn, AnExitIsReported) {
  EXPECT_THAT(
      error_of(run_spawner({"2:exit,0"})),
      ContainsRegex("code=peer_lost peer=0 text=spawn: rank 0 \\(pid [0-9]+\\) ended with exit code 7"));
}

TEST_F(Spawn, AKillIsReported) {
  EXPECT_THAT(
      error_of(run_spawner({"2:kill,1"})),
      ContainsRegex("peer=1 text=spawn: rank 1 \\(pid [0-9]+\\) was killed by signal 9 \\(SIGKILL\\)"));
}

TEST_F(Spawn, ASignalToTheLauncherIsReported) {
  Process spawner = start({program("probe_spawn"), "2:loop,-1"});
  spawner.await("sums");
  std::ifstream children("/proc/" + std::to_string(spawner.pid()) + "/task/" + std::to_string(spawner.pid()) +
                         "/children");
  pid_t launcher = 0;
  ASSERT_TRUE(children >> launcher);
  ASSERT_EQ(::kill(launcher, SIGTERM), 0);
  EXPECT_THAT(error_of(spawner.finish()),
              AllOf(HasSubstr("code=aborted peer=-1 text=spawn: "), HasSubstr("SIGTERM")));
}

TEST_F(Spawn, AFailureLeavesAFlightRecord) {
  const Ending ending = run_spawner({"2:kill,1"}, {{"LOCKSTEP_RECORD_DIR", folder() / "records"}});
  EXPECT_THAT(ending.err,
              ContainsRegex("`lockstep explain [^ ]*/records/[0-9a-f]+` says which rank was where"));
}

TEST_F(Spawn, WithinARankIsRefused) {
  const Ending ending = run_spawner({"1:nest"});
  EXPECT_THAT(error_of(ending), HasSubstr("code=peer_lost peer=0"));
  EXPECT_THAT(ending.err,
              HasSubstr("spawn: this process is already rank 0 of a job, and ranks do not start ranks; "
                        "probe_spawn starts its ranks itself, so start it without a launcher"));
}

TEST_F(Spawn, UnderALauncherIsRefused) {
  EXPECT_THAT(error_of(run_spawner({"2"}, {{"RANK", "3"}, {"WORLD_SIZE", "4"}})),
              HasSubstr("code=invalid_argument peer=-1 text=spawn: this process is already rank 3 of a job"));
  EXPECT_THAT(error_of(run_spawner({"2"}, {{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}})),
              HasSubstr("code=invalid_argument peer=-1 text=spawn: this process is one of several started by "
                        "Open MPI (OMPI_COMM_WORLD_SIZE is set), each of which would start ranks; "
                        "probe_spawn starts its ranks itself"));
}

TEST_F(Spawn, AfterInitIsRefused) {
  EXPECT_THAT(
      error_of(run_spawner({"init", "2"})),
      AllOf(HasSubstr("code=invalid_argument"), HasSubstr("call spawn() first, and init() in the function")));
}

TEST_F(Spawn, BesideThreadsIsRefused) {
  EXPECT_THAT(error_of(run_spawner({"thread", "2"})),
              AllOf(HasSubstr("code=invalid_argument"), HasSubstr("this process has 2 threads"),
                    HasSubstr("call spawn() before anything starts threads")));
}

TEST_F(Spawn, NumbersThatAreNoneAreRefused) {
  for (const char* number : {"0", "-1", "4097"}) {
    EXPECT_THAT(error_of(run_spawner({number})),
                HasSubstr("spawn: " + std::string(number) + " is not a number of ranks from 1 to 4096"));
  }
}

TEST_F(Spawn, RanksDieWithTheirProgram) {
  Process spawner = start({program("probe_spawn"), "2:loop,-1"});
  spawner.await("sums");
  spawner.send(SIGKILL);
  EXPECT_EQ(spawner.finish().exit_code, 128 + SIGKILL);  // and TearDown() finds nobody
}

}  // namespace
}  // namespace lockstep::testing
