// `lockstep run` on several hosts: real namespaces, a real sshd on each.
#include <filesystem>
#include <fstream>

#include "tests/support/job_test.h"
#include "tests/support/ssh_servers.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class RunOnHosts : public JobTest {
 protected:
  void make(int count) {
    if (!has_hosts(count)) GTEST_SKIP() << why_no_hosts();
    std::string why_not;
    servers_ = SshServers::start(hosts(), folder(), why_not);
    if (!servers_) GTEST_SKIP() << why_not;
  }
  void TearDown() override {
    for (int host = 0; servers_ && host < hosts().count(); ++host)
      EXPECT_THAT(servers_->left_behind(hosts(), host), IsEmpty()) << "on host " << host;
    servers_.reset();
    JobTest::TearDown();
  }

  /// "ADDRESS:SLOTS,..." of all hosts.
  std::string list(int slots) const {
    std::string text;
    for (int host = 0; host < hosts().count(); ++host)
      text += (host == 0 ? "" : ",") + hosts().address(host) + ":" + std::to_string(slots);
    return text;
  }
  Process launch(std::vector<std::string> options, std::vector<std::string> command, Variables more = {},
                 int from = 0) const {
    std::vector<std::string> words = {program("lockstep"), "run"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), command.begin(), command.end());
    more.insert(more.begin(), {"LOCKSTEP_SSH", servers_->client()});
    return start(words, more, hosts().network(from));
  }
  std::vector<std::string> probe(std::vector<std::string> actions) const {
    actions.insert(actions.begin(), program("probe_rank"));
    return actions;
  }
  const SshServers& servers() const { return *servers_; }

 private:
  std::optional<SshServers> servers_;
};

#define REQUIRE_SSH_HOSTS(count) \
  make(count);                   \
  if (IsSkipped()) return

TEST_F(RunOnHosts, TwoGetRightResults) {
  REQUIRE_SSH_HOSTS(2);
  const Ending ending = launch({"-np", "4", "-H", list(2)}, probe({"everything"})).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_THAT(ending.out, ContainsRegex("\\[" + std::to_string(rank) + "\\] .*checked [0-9]{3} calls"));
}

TEST_F(RunOnHosts, ThreeGetRightResultsFromAHostThatTakesNone) {
  REQUIRE_SSH_HOSTS(3);
  const std::string others = hosts().address(0) + ":2," + hosts().address(1) + ":1";
  const Ending ending = launch({"-H", others}, probe({"everything"}), {}, 2).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, ContainsRegex("\\[2\\] .*checked [0-9]{3} calls"));
}

TEST_F(RunOnHosts, EachRankIsToldItsPlace) {
  REQUIRE_SSH_HOSTS(3);
  const std::string say =
      "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK "
      "$HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE $MASTER_ADDR $WORD $PWD";
  std::ofstream(folder() / "hosts") << hosts().address(0) << " slots=2\n"
                                    << hosts().address(1) << " slots=1\n"
                                    << hosts().address(2) << ":2\n";
  const Ending ending =
      launch({"--hostfile", (folder() / "hosts").string(), "-x", "WORD=a b", "--wdir", "/usr"},
             {"/bin/sh", "-c", say})
          .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  const std::string rest = " " + hosts().address(0) + " a b /usr\n";
  for (const char* line : {"[0] 0/5 0/2 0 0/3", "[1] 1/5 1/2 0 0/2", "[2] 2/5 0/1 1 1/3", "[3] 3/5 0/2 2 2/3",
                           "[4] 4/5 1/2 2 1/2"})
    EXPECT_THAT(ending.out, HasSubstr(line + rest));
}

TEST_F(RunOnHosts, Rank0ReadsWhatTheLauncherReads) {
  REQUIRE_SSH_HOSTS(2);
  const std::string other = hosts().address(1) + ":1," + hosts().address(0) + ":1";
  Process job = launch({"-H", other, "--no-prefix"}, {"/bin/sh", "-c", "cat | tr a-z A-Z"});
  job.type("hello\n");
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(ending.out, "HELLO\n");
}

TEST_F(RunOnHosts, MuchOutputArrivesWholeAndBinaryAsItIs) {
  REQUIRE_SSH_HOSTS(2);
  const std::string script = "head -c 20000000 /dev/zero | tr '\\0' '\\377'";
  const std::string other = hosts().address(1) + ":1";
  const Ending ending = launch({"-H", other, "--no-prefix"}, {"/bin/sh", "-c", script}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(ending.out.size(), 20'000'000U);
  EXPECT_EQ(ending.out.find_first_not_of('\377'), std::string::npos);
}

TEST_F(RunOnHosts, ARankThatDiesIsNamedAndItsHostsEnd) {
  REQUIRE_SSH_HOSTS(2);
  const Ending ending =
      launch({"-H", list(2)}, probe({"barrier", "3:raise,9", "all_reduce,f32,300000"})).finish();
  EXPECT_EQ(ending.exit_code, 128 + SIGKILL);
  EXPECT_THAT(ending.err, ContainsRegex("rank 3 \\(pid [0-9]+\\) was killed by signal 9 \\(SIGKILL\\)"));
}

TEST_F(RunOnHosts, AHostThatIsNotThereIsInATableWithAnother) {
  REQUIRE_SSH_HOSTS(2);
  const Ending ending =
      launch({"-H", "10.177.0.9:1,no-such-host:1," + hosts().address(1) + ":1", "--start-timeout", "4s"},
             probe({"barrier"}))
          .finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err,
              AllOf(HasSubstr("2 of 3 hosts cannot take part:"),
                    ContainsRegex("\n  10.177.0.9   [^\n]*(No route to host|timed out)"),
                    ContainsRegex("\n  no-such-host [^\n]*resolve"), Not(HasSubstr(hosts().address(1)))));
}

TEST_F(RunOnHosts, AKeyThatIsRefusedIsSaidWithTheRemedy) {
  REQUIRE_SSH_HOSTS(2);
  const Ending ending =
      launch({"-H", hosts().address(1), "--ssh", servers().client_with_another_key()}, probe({"barrier"}))
          .finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err,
              AllOf(HasSubstr("Permission denied"), HasSubstr("ssh-copy-id " + hosts().address(1))));
}

TEST_F(RunOnHosts, AHostWithoutTheBinaryIsNamed) {
  REQUIRE_SSH_HOSTS(2);
  const Ending ending =
      launch({"-H", hosts().address(1), "--agent", "/opt/none/lockstep"}, probe({"barrier"})).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, AllOf(HasSubstr(hosts().address(1) + "  "),
                                HasSubstr("--agent PATH (now /opt/none/lockstep)")));
}

TEST_F(RunOnHosts, AnotherVersionIsNamed) {
  REQUIRE_SSH_HOSTS(2);
  const std::filesystem::path other = folder() / "lockstep";
  std::ofstream(other) << "#!/bin/sh\necho lockstep-agent 0.0.1\nexec cat\n";
  std::filesystem::permissions(other, std::filesystem::perms::owner_all);
  const Ending ending =
      launch({"-H", hosts().address(1), "--agent", other.string()}, probe({"barrier"})).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, HasSubstr("has Lockstep 0.0.1, this host has "));
}

TEST_F(RunOnHosts, AProgramOrFolderThatIsNotThereIsNamed) {
  REQUIRE_SSH_HOSTS(2);
  const Ending program = launch({"-H", list(1)}, {"/no/program"}).finish();
  EXPECT_EQ(program.exit_code, 127);
  EXPECT_THAT(program.err, AllOf(HasSubstr("2 of 2 hosts cannot take part"), HasSubstr("/no/program")));
  const Ending wdir = launch({"-H", list(1), "--wdir", "/no/folder"}, probe({"barrier"})).finish();
  EXPECT_EQ(wdir.exit_code, 1);
  EXPECT_THAT(wdir.err, HasSubstr("the folder /no/folder is not there"));
}

TEST_F(RunOnHosts, CtrlCEndsAllHosts) {
  REQUIRE_SSH_HOSTS(2);
  Process job = launch({"-H", list(1)}, {"/bin/sh", "-c", "echo ready; exec sleep 60"});
  job.await("[0] ready");
  job.await("[1] ready");
  job.send(SIGINT);
  EXPECT_EQ(job.finish().exit_code, 130);
}

TEST_F(RunOnHosts, AKilledLauncherLeavesNothing) {
  REQUIRE_SSH_HOSTS(2);
  Process job = launch({"-H", list(1)}, {"/bin/sh", "-c", "echo ready; exec sleep 60"});
  job.await("[0] ready");
  job.await("[1] ready");
  job.send(SIGKILL);
  EXPECT_EQ(job.finish().exit_code, 128 + SIGKILL);
}

}  // namespace
}  // namespace lockstep::testing
