// `lockstep run` on several hosts: real namespaces, a real sshd on each.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/ssh_job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class RunOnHosts : public SshJobTest {
 protected:
  Process launch(std::vector<std::string> options, std::vector<std::string> command, Variables more = {},
                 int from = 0) const {
    std::vector<std::string> words = {program("lockstep"), "run"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), command.begin(), command.end());
    more.insert(more.begin(), {"LOCKSTEP_SSH", servers().client()});
    return start(words, more, hosts().network(from));
  }
  std::vector<std::string> probe(std::vector<std::string> actions) const {
    actions.insert(actions.begin(), program("probe_rank"));
    return actions;
  }
  /// A guard sees that nobody is there any more, and ends what is stopped, too.
  void await_nothing_left(int host) const {
    for (const auto limit = Deadline::after(std::chrono::seconds(20));
         !servers().left_behind(hosts(), host).empty() && !limit.expired();
         std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
    }
  }
};

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

TEST_F(RunOnHosts, ThatHaveOnlyIPv6GetRightResults) {
  REQUIRE_SSH_HOSTS(2);
  for (int host = 0; host < 2; ++host) {
    const std::string own = "fd00:177::" + std::to_string(host + 1) + "/64";
    const Ending set_up =
        run({.words = {"/bin/sh", "-ec",
                       "ip -4 address flush dev cable; ip -6 address add " + own + " dev cable nodad"},
             .network = hosts().network(host)});
    ASSERT_EQ(set_up.exit_code, 0) << set_up.err;
  }
  const std::vector<std::string> both = {"-H", "[fd00:177::1]:2,[fd00:177::2]:2"};
  const Ending ending = launch(both, probe({"everything"})).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_THAT(ending.out, ContainsRegex("\\[" + std::to_string(rank) + "\\] .*checked [0-9]{3} calls"));
  const Ending told = launch(both, {"/bin/sh", "-c", "echo at $MASTER_ADDR"}, {}, 1).finish();
  EXPECT_THAT(told.out, AllOf(HasSubstr("[0] at fd00:177::1\n"), HasSubstr("[3] at fd00:177::1\n")))
      << told.err;
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
      launch({"-H", "10.177.0.9:1,no-such-host:1," + hosts().address(1) + ":1", "--start-timeout", "30s"},
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

TEST_F(RunOnHosts, AKilledAgentLosesItsHostAndIsSaid) {
  REQUIRE_SSH_HOSTS(2);
  for (const std::size_t which : {0U, 1U}) {
    Process job = launch({"-H", list(1)}, probe({"barrier", "say,here", "pause"}));
    job.await("[0] probe rank=0 here");
    job.await("[1] probe rank=1 here");
    const auto agents = agents_of(1);
    ASSERT_THAT(agents, SizeIs(2));
    ASSERT_EQ(::kill(agents[which], SIGKILL), 0);
    const Ending ending = job.finish();
    EXPECT_EQ(ending.exit_code, 1);
    EXPECT_THAT(ending.err, ContainsRegex("lockstep run: rank 1 \\(pid [0-9]+\\): its host " +
                                          hosts().address(1) + " was lost: "));
    EXPECT_THAT(servers().left_behind(hosts(), 1), IsEmpty());
  }
}

TEST_F(RunOnHosts, AStoppedAgentDoesNotKeepTheJobFromItsEnd) {
  REQUIRE_SSH_HOSTS(2);
  Process job = launch({"-H", list(1)}, probe({"barrier", "say,here", "pause"}));
  job.await("[0] probe rank=0 here");
  job.await("[1] probe rank=1 here");
  const auto agents = agents_of(1);
  ASSERT_THAT(agents, SizeIs(2));
  ASSERT_EQ(::kill(agents[1], SIGSTOP), 0);
  job.send(SIGINT);
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 130);
  EXPECT_THAT(ending.err, HasSubstr("lockstep run: the agent on " + hosts().address(1) +
                                    " does not answer: what runs there "));
  await_nothing_left(1);
}

TEST_F(RunOnHosts, AHostThatIsSilentIsSaidAndThenLost) {
  REQUIRE_SSH_HOSTS(2);
  const std::string host = hosts().address(1);
  Process job = launch({"-H", list(1)}, probe({"barrier", "say,here", "pause"}),
                       {{"LOCKSTEP_WARN_AFTER", "2s"}, {"LOCKSTEP_TIMEOUT", "5s"}});
  job.await("[0] probe rank=0 here");
  job.await("[1] probe rank=1 here");
  const auto agents = agents_of(1);
  ASSERT_THAT(agents, SizeIs(2));
  ASSERT_EQ(::kill(agents[1], SIGSTOP), 0);
  job.await_err(
      "lockstep run: nothing has been heard of host " + host +
      " for 2 s (LOCKSTEP_WARN_AFTER): its agent is stopped, or the network to it is cut; after 5 s "
      "(LOCKSTEP_TIMEOUT) it counts as lost\n");
  ASSERT_EQ(::kill(agents[1], SIGCONT), 0);
  job.await_err("lockstep run: host " + host + " is heard again\n");
  ASSERT_EQ(::kill(agents[1], SIGSTOP), 0);
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, ContainsRegex("rank 1 \\(pid [0-9]+\\): its host " + host +
                                        " was lost: its agent does not answer, and may still run there"));
  await_nothing_left(1);
}

TEST_F(RunOnHosts, AHostWhoseCableIsCutIsLostThoughNobodyWaitsForIt) {
  REQUIRE_SSH_HOSTS(2);
  const auto cable = [&](const std::string& state) {
    EXPECT_EQ(start({"ip", "link", "set", "cable", state}, {}, hosts().network(1)).finish().exit_code, 0);
  };
  Process job = launch({"-H", list(1)}, probe({"barrier", "say,here", "pause"}),
                       {{"LOCKSTEP_WARN_AFTER", "2s"}, {"LOCKSTEP_TIMEOUT", "5s"}});
  job.await("[0] probe rank=0 here");
  job.await("[1] probe rank=1 here");
  cable("down");
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, HasSubstr("its host " + hosts().address(1) + " was lost: "));
  EXPECT_THAT(servers().left_behind(hosts(), 0), IsEmpty());
  cable("up");  // until then nobody can tell what runs there
  await_nothing_left(1);
}

TEST_F(RunOnHosts, ABannerIsNotTakenForTheCause) {
  REQUIRE_SSH_HOSTS(2);
  const auto script = folder() / "ssh_with_banner";
  std::ofstream(script) << "#!/bin/sh\necho AUTHORIZED USERS ONLY >&2\nexec " << servers().client()
                        << " \"$@\"\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const Ending ending = launch({"-H", list(1), "--ssh", script, "--agent", "/bin/false"}, {"true"}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, HasSubstr("ended with exit code 1, and wrote last: AUTHORIZED USERS ONLY"));
}

TEST_F(RunOnHosts, ASecondCtrlCEndsAllAtOnce) {
  REQUIRE_SSH_HOSTS(2);
  Process job =
      launch({"-H", list(1), "--grace", "60s"}, {"/bin/sh", "-c", "trap '' INT TERM; echo ready; sleep 60"});
  job.await("[0] ready");
  job.await("[1] ready");
  job.send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // two within 100 ms are one press
  job.send(SIGINT);
  EXPECT_EQ(job.finish().exit_code, 130);
}

TEST_F(RunOnHosts, WhatARankLeavesBehindElsewhereIsEndedAndSaid) {
  REQUIRE_SSH_HOSTS(2);
  const Ending ending =
      launch({"-H", list(1)}, {"/bin/sh", "-c", "sleep 60 >/dev/null 2>&1 & exit 0"}).finish();
  EXPECT_EQ(ending.exit_code, 0);
  EXPECT_THAT(ending.err, HasSubstr("lockstep run: ended 2 processes that the ranks had left behind"));
}

TEST_F(RunOnHosts, AStoppedRankElsewhereIsNamedAndGivenUp) {
  REQUIRE_SSH_HOSTS(2);
  const Ending ending = launch({"-H", list(1)}, {"/bin/sh", "-c", "[ $RANK = 0 ] || kill -STOP $$"},
                               {{"LOCKSTEP_WARN_AFTER", "500ms"}, {"LOCKSTEP_TIMEOUT", "1s"}})
                            .finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, ContainsRegex("rank 1 \\(pid [0-9]+\\) was stopped .* and was ended"));
}

TEST_F(RunOnHosts, AFlightRecordHasTheRanksOfAll) {
  REQUIRE_SSH_HOSTS(2);
  const std::string records = (folder() / "records").string();
  const Ending ending = launch({"-H", list(1), "--record-dir", records},
                               probe({"barrier", "1:raise,9", "all_reduce,f32,300000"}))
                            .finish();
  EXPECT_EQ(ending.exit_code, 128 + SIGKILL);
  const auto of_job = std::filesystem::directory_iterator(records)->path();
  const Ending told = start({program("lockstep"), "explain", of_job}).finish();
  EXPECT_THAT(
      told.out,
      AllOf(HasSubstr("dead rank"), HasSubstr("host " + hosts().address(0) + ", " + hosts().address(1)),
            ContainsRegex("rank 0 \\(pid [0-9]+\\)"), ContainsRegex("rank 1 \\(pid [0-9]+\\)")))
      << told.err;
}

TEST_F(RunOnHosts, TwoNamesOfOneMachineAreOneHost) {
  REQUIRE_SSH_HOSTS(2);
  const std::string names = hosts().address(1) + ":1,root@" + hosts().address(1) + ":1";
  const Ending ending =
      launch({"-H", names}, {"/bin/sh", "-c", "echo $RANK $LOCAL_RANK/$LOCAL_WORLD_SIZE"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, AllOf(HasSubstr("[0] 0 0/2\n"), HasSubstr("[1] 1 1/2\n")));
}

TEST_F(RunOnHosts, ADiskThatIsFullLosesOutputAndNoTraining) {
  REQUIRE_SSH_HOSTS(2);
  const std::string done = (folder() / "done").string();
  const Ending ending = launch({"-np", "1", "-H", hosts().address(1)},
                               {"/bin/sh", "-c", "seq 100000; echo yes >" + done}, {}, 0)
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  const std::string command = program("lockstep") + " run -H " + hosts().address(1) +
                              " /bin/sh -c 'seq 1000000; echo yes >" + done + "2' >/dev/full";
  const Ending full =
      start({"/bin/sh", "-c", command}, {{"LOCKSTEP_SSH", servers().client()}}, hosts().network(0)).finish();
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(lines_with(full.err, "lockstep run: cannot write to stdout: No space left on device"),
              SizeIs(1));
  EXPECT_TRUE(std::filesystem::exists(done + "2"));
}

TEST_F(RunOnHosts, OnThisHostAloneTakeTheSameOptions) {
  const std::filesystem::path elsewhere = folder() / "elsewhere";
  std::filesystem::create_directory(elsewhere);
  std::ofstream(elsewhere / "say") << "#!/bin/sh\necho $WORD in $PWD\n";
  std::filesystem::permissions(elsewhere / "say", std::filesystem::perms::owner_all);
  const auto launch_here = [&](const std::string& wdir) {
    return start({program("lockstep"), "run", "-H", "localhost:2", "-x", "WORD=a b", "-x", "OTHER=1",
                  "--wdir", wdir, "./say"})
        .finish();
  };
  const Ending ending = launch_here(elsewhere.string());
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const char* prefix : {"[0] ", "[1] "})
    EXPECT_THAT(ending.out, HasSubstr(prefix + ("a b in " + elsewhere.string() + "\n")));
  const Ending nowhere = launch_here("/no/folder");
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("--wdir /no/folder is no folder here"));
}

TEST_F(RunOnHosts, OneMayBeReachedByWayOfAnother) {
  REQUIRE_SSH_HOSTS(3);
  const std::filesystem::path sockets = folder() / "sockets";
  std::filesystem::create_directory(sockets);
  const auto launched = [&](const std::string& width) {
    return launch({"-H", list(1), "--tree-width", width}, probe({"everything"}),
                  {{"XDG_RUNTIME_DIR", sockets.string()}})
        .finish();
  };
  for (const char* width : {"1", "2"}) {
    const Ending ending = launched(width);
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_THAT(ending.out, ContainsRegex("\\[" + std::to_string(rank) + "\\] .*checked [0-9]{3} calls"));
    EXPECT_TRUE(std::filesystem::is_empty(sockets));
  }
}

TEST_F(RunOnHosts, OneThatCannotBeReachedByWayOfAnotherNamesIt) {
  REQUIRE_SSH_HOSTS(2);
  const std::string both = hosts().address(0) + ":1,nowhere.invalid:1";
  const Ending ending = launch({"-H", both, "--tree-width", "1"}, {"true"}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, HasSubstr("Could not resolve hostname nowhere.invalid"));
  EXPECT_THAT(ending.err, HasSubstr("(by way of " + hosts().address(0) + ")"));
}

// The way ends with the host; those behind it are lost with it, and nothing stays on either.
TEST_F(RunOnHosts, AHostThatIsTheWayToAnotherAndIsLostEndsTheJob) {
  REQUIRE_SSH_HOSTS(3);
  Process job = launch({"-H", list(1), "--tree-width", "1"}, probe({"barrier", "say,here", "pause"}), {}, 2);
  for (const char* rank : {"0", "1", "2"})
    job.await(std::string("[") + rank + "] probe rank=" + rank + " here");
  for (const pid_t agent : agents_of(0)) (void)::kill(agent, SIGKILL);
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, ContainsRegex("lockstep run: rank 0 \\(pid [0-9]+\\): its host " +
                                        hosts().address(0) + " was lost: "));
}

class RunBySomeShell : public JobTest {
 protected:
  /// A program in place of ssh, which does this with the command for the other host, $1 being its name.
  std::string shell(const std::string& script) const {
    const std::filesystem::path path = folder() / "shell";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  }
  Ending launch(const std::string& script, std::vector<std::string> options) const {
    std::vector<std::string> words = {program("lockstep"), "run", "--ssh", shell(script)};
    words.insert(words.end(), options.begin(), options.end());
    return start(words).finish();
  }
};

TEST_F(RunBySomeShell, WhatALoginShellPrintsFirstIsNoHarm) {
  const Ending ending = launch("echo Welcome to $1; exec sh -c \"$2\"",
                               {"-np", "1", "-H", "far", "--no-prefix", "echo", "hello"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(ending.out, "hello\n");
}

TEST_F(RunBySomeShell, AnAgentThatDoesNotMakeSenseIsSaid) {
  const std::string version = run({.words = {program("lockstep"), "--version"}}).out.substr(9);
  const std::string greeting = "echo lockstep-agent " + version.substr(0, version.find('\n'));
  const Ending huge = launch(greeting + "; head -c 100 /dev/zero | tr '\\0' '\\377'; exec cat >/dev/null",
                             {"-H", "far", "true"});
  EXPECT_EQ(huge.exit_code, 1);
  EXPECT_THAT(huge.err, HasSubstr("far  its agent does not make sense: a message of 4294967295 bytes"));
  const Ending early =
      launch(greeting + "; printf '\\0\\0\\0\\0\\007'; exec cat >/dev/null", {"-H", "far", "true"});
  EXPECT_THAT(early.err,
              HasSubstr("far  its agent does not make sense: a message of kind 7 comes too early"));
}

TEST_F(RunBySomeShell, AHostThatSaysNothingIsATimeOut) {
  const Ending ending = launch("exec cat", {"-H", "far", "--start-timeout", "300ms", "true"});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, HasSubstr("far  has not started its agent within 300 ms (--start-timeout)"));
}

TEST_F(RunBySomeShell, AnAgentThatIsAnotherProgramIsSaid) {
  const Ending ending = launch("exec /bin/true", {"-H", "far", "--agent", "/bin/true", "true"});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err,
              HasSubstr(" ended with exit code 0; is --agent PATH (now /bin/true) the command lockstep?"));
}

TEST_F(RunBySomeShell, AShellThatIsNotThereIsSaid) {
  const Ending ending = start({program("lockstep"), "run", "--ssh", "/no/ssh", "-H", "far", "true"}).finish();
  EXPECT_EQ(ending.exit_code, 126);
  EXPECT_THAT(
      ending.err,
      HasSubstr("/no/ssh: there is no such program; it is what reaches other hosts: install OpenSSH's "
                "client, or say which (--ssh COMMAND, LOCKSTEP_SSH)"));
}

TEST_F(RunBySomeShell, NeitherArgumentsNorEnvironmentOfTheShellHoldASecret) {
  const std::string seen = (folder() / "seen").string();
  const Ending ending = launch("(echo \"$@\"; env) >" + seen + "; exec sh -c \"$2\"",
                               {"-np", "1", "-H", "far", "sh", "-c",
                                "cat /proc/self/fd/$LOCKSTEP_SECRET_FD | od -An -tx1 | tr -d ' \\n'"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  const std::string secret = ending.out.substr(4, 64);
  ASSERT_THAT(secret, ::testing::MatchesRegex("[0-9a-f]{64}"));
  const std::string text = text_in(seen);
  std::string bytes;
  for (std::size_t i = 0; i < secret.size(); i += 2)
    bytes += static_cast<char>(std::stoi(secret.substr(i, 2), nullptr, 16));
  EXPECT_THAT(text, AllOf(Not(HasSubstr(secret)), Not(HasSubstr(bytes))));
}

TEST_F(RunBySomeShell, WrongUsageStartsNothing) {
  const auto usage = [&](std::vector<std::string> options) {
    return launch("touch " + (folder() / "started").string(), std::move(options));
  };
  std::ofstream(folder() / "hosts") << "server1 slots=2\nserver2 slots=x\n";
  const std::string hostfile = (folder() / "hosts").string();
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"-np", "9", "-H", "a:2,b:2", "true"}, "9"},
      {{"-H", "a:2,", "true"}, "-H"},
      {{"-H", "-oProxyCommand=x", "true"}, "-H"},
      {{"--hostfile", hostfile, "true"}, hostfile + ", line 2: "},
      {{"--hostfile", "/no/file", "true"}, "/no/file"},
      {{"-H", "a", "--hostfile", hostfile, "true"}, "-H and --hostfile both say where"},
      {{"-H", "a", "-x", "NO_SUCH_VARIABLE_HERE", "true"}, "there is no such variable here"},
      {{"-H", "a", "-x", "=3", "true"}, "names no variable"},
      {{"-H", "a", "--start-timeout", "soon", "true"}, "--start-timeout"}};
  for (const auto& [options, text] : wrong) {
    const Ending ending = usage(options);
    EXPECT_EQ(ending.exit_code, 2) << text;
    EXPECT_THAT(ending.err, AllOf(HasSubstr("lockstep run: "), HasSubstr(text)));
  }
  EXPECT_FALSE(std::filesystem::exists(folder() / "started"));
}

}  // namespace
}  // namespace lockstep::testing
