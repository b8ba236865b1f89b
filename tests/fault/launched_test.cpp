// The same program, without flags or wrappers, under launchers of others: the real ones where they are installed.
#include <filesystem>
#include <fstream>

#include "tests/support/job_test.h"
#include "tests/support/ssh_servers.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

struct Mpi {
  std::string peer;
  std::vector<std::string> words;  // behind the launcher
};

void PrintTo(const Mpi& mpi, std::ostream* out) { *out << mpi.peer; }

class Launched : public JobTest, public ::testing::WithParamInterface<Mpi> {
 protected:
  void SetUp() override {
    JobTest::SetUp();
    const auto launcher = peer_program(GetParam().peer, "mpiexec");
    if (!launcher)
      GTEST_SKIP() << GetParam().peer << " is not installed: script/bootstrap --peers " << GetParam().peer;
    launcher_ = *launcher;
  }
  Process launch(int ranks, std::vector<std::string> words, const Variables& variables = {}) const {
    std::vector<std::string> all = {launcher_};
    all.insert(all.end(), GetParam().words.begin(), GetParam().words.end());
    all.insert(all.end(), {"-n", std::to_string(ranks)});
    all.insert(all.end(), words.begin(), words.end());
    Variables with_folder = {{"TMPDIR", folder()}};
    with_folder.insert(with_folder.end(), variables.begin(), variables.end());
    return start(all, with_folder);
  }

 private:
  std::string launcher_;
};

TEST_P(Launched, RanksFindEachOther) {
  const Ending ending = launch(3, {program("probe_rank"), "everything", "next_world", "barrier"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const char* rank : {"rank=0 of 3 done", "rank=1 of 3 done", "rank=2 of 3 done"})
    EXPECT_THAT(lines_with(ending.out, std::string("probe ") + rank), SizeIs(2)) << ending.out;
  EXPECT_THAT(lines_with(ending.err, "lockstep"), IsEmpty()) << ending.err;
}

TEST_P(Launched, OurOwnLauncherIsRefusedInEachOfSeveral) {
  const Ending ending =
      launch(2, {program("lockstep"), "run", "-np", "2", program("probe_rank"), "say,here"}).finish();
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(ending.err, HasSubstr("this is one of 2 processes started by "));
  EXPECT_THAT(ending.out, Not(HasSubstr("here")));
}

TEST_P(Launched, TwoJobsAtOnceDoNotMeet) {
  Process one = launch(2, {program("probe_rank"), "everything"});
  Process other = launch(2, {program("probe_rank"), "everything"});
  for (Process* job : {&one, &other}) {
    const Ending ending = job->finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, HasSubstr("rank=1 of 2 done"));
  }
}

TEST_P(Launched, OneRankIsAlone) {
  const Ending ending = launch(1, {program("probe_rank"), "barrier"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("probe rank=0 of 1 done"));
}

TEST_P(Launched, APlaceToMeetThatTheUserNamesIsTaken) {
  const Variables place = {{"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", std::to_string(port())},
                           {"LOCKSTEP_SECRET_FILE", secret_file("ours, and long enough")}};
  const Ending ending = launch(2, {program("probe_rank"), "everything"}, place).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("rank=1 of 2 done"));
}

INSTANTIATE_TEST_SUITE_P(By, Launched,
                         ::testing::Values(Mpi{"mpich", {}}, Mpi{"impi", {}},
                                           Mpi{"openmpi", {"--allow-run-as-root", "--oversubscribe"}}),
                         [](const auto& info) { return info.param.peer; });

class LaunchedByTfConfig : public JobTest {};

TEST_F(LaunchedByTfConfig, ChiefAndWorkersAreAWorldAndTheEvaluatorIsAnother) {
  const std::string at = "\"127.0.0.1:" + std::to_string(port()) + "\"";
  const auto task = [&](const std::string& type, int index) {
    return Variables{{"TF_CONFIG", "{\"cluster\": {\"chief\": [" + at +
                                       "], \"worker\": [\"127.0.0.1:1\", \"127.0.0.1:2\"], \"evaluator\": "
                                       "[\"127.0.0.1:3\"]}, \"task\": {\"type\": \"" +
                                       type + "\", \"index\": " + std::to_string(index) + "}}"}};
  };
  std::vector<Process> ranks;
  ranks.push_back(start({program("probe_rank"), "everything"}, task("chief", 0)));
  ranks.push_back(start({program("probe_rank"), "everything"}, task("worker", 0)));
  ranks.push_back(start({program("probe_rank"), "everything"}, task("worker", 1)));
  ranks.push_back(start({program("probe_rank"), "barrier"}, task("evaluator", 0)));
  const std::vector<std::string> expected = {"rank=0 of 3 done", "rank=1 of 3 done", "rank=2 of 3 done",
                                             "rank=0 of 1 done"};
  const auto endings = finish(ranks);
  for (std::size_t i = 0; i < endings.size(); ++i) {
    EXPECT_EQ(endings[i].exit_code, 0) << endings[i].err;
    EXPECT_THAT(endings[i].out, HasSubstr(expected[i]));
  }
}

class LaunchedByHorovodrun : public JobTest {};

/// Its variables; the real one is in script/soak horovodrun.
TEST_F(LaunchedByHorovodrun, RanksFindEachOther) {
  std::vector<Process> ranks;
  for (const char* rank : {"0", "1"}) {
    ranks.push_back(start({program("probe_rank"), "everything"},
                          {{"HOROVOD_RANK", rank},
                           {"HOROVOD_SIZE", "2"},
                           {"HOROVOD_LOCAL_RANK", rank},
                           {"HOROVOD_LOCAL_SIZE", "2"},
                           {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"},
                           {"HOROVOD_GLOO_RENDEZVOUS_PORT", std::to_string(port())}}));
  }
  const auto endings = finish(ranks);
  for (const Ending& ending : endings) EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(endings[1].out, HasSubstr("rank=1 of 2 done"));
  const Ending alone = start({program("probe_rank"), "barrier"},
                             {{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "2"}, {"HOROVOD_LOCAL_SIZE", "1"}})
                           .finish();
  EXPECT_EQ(alone.exit_code, 1) << "on two hosts it is told what to set, and is no world of one";
  EXPECT_THAT(alone.err, HasSubstr("LOCKSTEP_MEETING_DIR"));
}

class LaunchedByPort : public JobTest {};

TEST_F(LaunchedByPort, RanksAreToldSoAndAreNoWorldsOfOne) {
  const auto launcher = peer_program("mpich", "mpiexec");
  if (!launcher) GTEST_SKIP() << "mpich is not installed: script/bootstrap --peers mpich";
  const Ending ending =
      start({*launcher, "-pmi-port", "-n", "2", program("probe_rank"), "say,here"}, {{"TMPDIR", folder()}})
          .finish();
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(ending.out, Not(HasSubstr("here")));
  EXPECT_THAT(ending.err,
              HasSubstr("PMI_PORT is set, so this is a rank of some launcher, but how many there are "
                        "is not said: start mpiexec without -pmi-port"));
}

class LaunchedOnTwoHosts : public JobTest, public ::testing::WithParamInterface<Mpi> {
 protected:
  void TearDown() override {
    servers_.reset();
    JobTest::TearDown();
  }
  std::optional<SshServers> servers_;
};

TEST_P(LaunchedOnTwoHosts, RanksFindEachOtherOnItsNoticeboard) {
  const auto launcher = peer_program(GetParam().peer, "mpiexec");
  if (!launcher)
    GTEST_SKIP() << GetParam().peer << " is not installed: script/bootstrap --peers " << GetParam().peer;
  REQUIRE_TWO_HOSTS();
  std::string why_not;
  servers_ = SshServers::start(hosts(), folder(), why_not);
  if (!servers_) GTEST_SKIP() << why_not;
  const std::filesystem::path ssh = folder() / "ssh";
  std::ofstream(ssh) << "#!/bin/sh\nexec " << servers_->client() << " \"$@\"\n";
  std::filesystem::permissions(ssh, std::filesystem::perms::owner_all);
  std::vector<std::string> words = {launcher->string()};
  words.insert(words.end(), GetParam().words.begin(), GetParam().words.end());
  const std::string first = hosts().address(0), second = hosts().address(1);
  if (GetParam().peer == "openmpi") {
    words.insert(words.end(),
                 {"--prtemca", "plm_ssh_agent", ssh.string(), "-H", first + ":2," + second + ":2"});
  } else {
    words.insert(words.end(), {"-launcher", "ssh", "-launcher-exec", ssh.string(), "-hosts",
                               first + "," + second, "-ppn", "2"});
  }
  words.insert(words.end(), {"-n", "4", program("probe_rank"), "everything", "next_world", "barrier"});
  const Ending ending =
      start(words, {{"LOCKSTEP_INIT_TIMEOUT", "20s"}, {"TMPDIR", folder()}}, hosts().network(0)).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const char* rank : {"rank=0 of 4 done", "rank=1 of 4 done", "rank=2 of 4 done", "rank=3 of 4 done"})
    EXPECT_THAT(ending.out, HasSubstr(rank)) << ending.err;
}

INSTANTIATE_TEST_SUITE_P(By, LaunchedOnTwoHosts,
                         ::testing::Values(Mpi{"mpich", {}}, Mpi{"impi", {}},
                                           Mpi{"openmpi", {"--allow-run-as-root"}}),
                         [](const auto& info) { return info.param.peer; });

}  // namespace
}  // namespace lockstep::testing
