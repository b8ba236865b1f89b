// Jobs that grow and shrink with the hosts that a script finds: `lockstep run --host-discovery-script`.
#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/support/ssh_job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FoundHosts : public SshJobTest {
 protected:
  /// What the script prints from now on.
  void find(const std::string& lines) const {
    std::ofstream(folder() / "next") << lines;
    std::filesystem::rename(folder() / "next", folder() / "hosts");
  }
  std::string script() const { return "cat " + (folder() / "hosts").string(); }
  std::vector<std::string> job(const std::vector<std::string>& options) const {
    std::vector<std::string> words = {program("lockstep"), "run", "--host-discovery-script", script()};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {program("probe_views"), "--steps=1000000", "--pause-us=1000"});
    return words;
  }
  void expect_refused(const std::vector<std::string>& options, const std::string& text) const {
    std::vector<std::string> words = {program("lockstep"), "run"};
    words.insert(words.end(), options.begin(), options.end());
    words.push_back("true");
    const Ending ending = start(words).finish();
    EXPECT_EQ(ending.exit_code, 2) << ending.err;
    EXPECT_THAT(ending.err, HasSubstr(text));
    EXPECT_THAT(ending.out, IsEmpty());
  }
};

TEST_F(FoundHosts, GiveRanksSlotsAndTakeThemAway) {
  find("# this host\nlocalhost:2\n");
  Process launched = start(job({"-np", "2", "--min-np", "1", "--max-np", "3"}));
  launched.await("[1] probe rank=1 incarnation=0 view world of 0,1 at step 0");
  find("localhost:9\n");
  launched.await_err("lockstep run: localhost has 9 slots: rank 2 is started\n");
  launched.await_err("lockstep run: rank 2 is in the job\nlockstep run: view 2 has ranks 0-2\n");
  launched.await("[2] probe rank=2 incarnation=1 view world#2 of 0,1,2 at step");
  find("localhost:1\n");
  launched.await_err("lockstep run: view 3 has rank 0\n");
  launched.await("[0] probe rank=0 incarnation=0 view world#3 of 0 at step");
  find("localhost:2\n");
  launched.await("[1] probe rank=1 incarnation=1 view world#4 of 0,1 at step");
  find("localhost:0\n");  // all but one
  launched.await_err("lockstep run: view 5 has rank 1\n");
  launched.send(SIGTERM);
  const Ending ending = launched.finish();
  EXPECT_EQ(ending.exit_code, 128 + SIGTERM);
  EXPECT_THAT(ending.err, AllOf(HasSubstr("lockstep run: rank 2 is ended: localhost has 1 slot now\n"),
                                HasSubstr("lockstep run: rank 0 is ended: localhost has 0 slots now\n")));
}

TEST_F(FoundHosts, ARankThatDiesIsStartedAgainWhereItHasASlot) {
  find("localhost:2\n");
  auto words = job({"-np", "2", "--min-np", "1", "--max-restarts", "1"});
  words.emplace_back("--kill=1@5");
  Process again = start(words);
  again.await("[1] probe rank=1 incarnation=1 view world#");
  again.await_err("it is started again, restart 1 of 1");
  again.send(SIGTERM);
  EXPECT_EQ(again.finish().exit_code, 128 + SIGTERM);
}

TEST_F(FoundHosts, WhatTheScriptCannotSayChangesNothing) {
  find("localhost:2\n");
  Process launched = start(job({"-np", "2", "--min-np", "1"}));
  launched.await("[1] probe rank=1 incarnation=0 view world of 0,1 at step 0");
  find("localhost:2\nelsewhere:4\n");
  launched.await_err(
      "lockstep run: host elsewhere was not there when the job began, and is not taken; start the job again "
      "to have it\n");
  find("localhost:two\n");
  launched.await_err(
      "line 1: \"localhost:two\" has \"two\" slots, which is no number from 1 to 65536; hosts stay as they "
      "were\n");
  std::filesystem::remove(folder() / "hosts");
  launched.await_err("it ended with exit code 1; hosts stay as they were\n");
  find("localhost:1\n");
  launched.await_err("lockstep run: view 2 has rank 0\n");
  launched.send(SIGTERM);
  const Ending ending = launched.finish();
  EXPECT_EQ(ending.exit_code, 128 + SIGTERM);
  EXPECT_THAT(lines_with(ending.err, "lockstep run: host elsewhere"), SizeIs(1)) << "once";
  EXPECT_THAT(lines_with(ending.err, "lockstep run: --host-discovery-script"), SizeIs(2))
      << "each problem once";
}

TEST_F(FoundHosts, AScriptThatDoesNotEndIsEndedWithTheJob) {  // as the fixture looks for what is left
  find("localhost:2\n");
  const std::string once = (folder() / "once").string();
  auto words = job({"-np", "2", "--min-np", "1"});
  words[3] = "test -e " + once + " && exec sleep 1000; touch " + once + "; echo localhost:2";
  Process launched = start(words);
  launched.await("[1] probe rank=1 incarnation=0 view world of 0,1 at step 0");
  launched.send(SIGTERM);
  EXPECT_EQ(launched.finish().exit_code, 128 + SIGTERM);
}

TEST_F(FoundHosts, NonsenseIsRefused) {
  const std::vector<std::string> least = {"--min-np", "1"};
  const auto with = [&](const std::string& command, std::vector<std::string> more = {"--min-np", "1"}) {
    more.insert(more.begin(), {"--host-discovery-script", command});
    return more;
  };
  expect_refused(with("exit 3"), "--host-discovery-script exit 3: it ended with exit code 3");
  expect_refused(with("echo a b"), "--host-discovery-script echo a b, line 1: ");
  expect_refused(with("echo a:1,b:2"), "\"a:1,b:2\" are several hosts; each has a line of its own");
  expect_refused(with("yes localhost"), "it prints more than 1 MiB");
  expect_refused(with("true"), "has found 0 slots (no host), and the job needs 1 (--min-np)");
  expect_refused(with("echo localhost:2", {"--min-np", "3"}),
                 "has found 2 slots (localhost:2), and the job needs 3 (--min-np)");
  expect_refused(with("echo localhost:2", {"-np", "2"}), "--host-discovery-script needs --min-np N");
  expect_refused(with("echo localhost:2", {"-np", "3", "--max-np", "2", "--min-np", "1"}),
                 "--max-np 2 is less than the 3 ranks that -np says");
  expect_refused(with("echo localhost:2", {"-H", "localhost:2", "--min-np", "1"}),
                 "leave -H, --hostfile, --standalone, --nnodes and --nproc-per-node out");
  expect_refused({"-np", "2", "--slots-per-host", "2"},
                 "--slots-per-host is of hosts that --host-discovery-script finds");
}

TEST_F(FoundHosts, OfWhichSlotsAreNotSaidHaveAsManyAsAnOptionSays) {
  const Ending ending =
      start({program("lockstep"), "run", "--host-discovery-script", "echo localhost", "--slots-per-host", "3",
             "--min-np", "1", "--no-prefix", "sh", "-c", "echo rank $RANK"})
          .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.out, "rank "), SizeIs(3));
}

TEST_F(FoundHosts, MayBeSeveral) {
  REQUIRE_SSH_HOSTS(2);
  const std::string first = hosts().address(0), second = hosts().address(1);
  find(first + ":1\n" + second + ":1\n");
  Process launched = start(job({"-np", "2", "--min-np", "1", "--max-np", "4"}),
                           {{"LOCKSTEP_SSH", servers().client()}}, hosts().network(0));
  launched.await(
      "[2] probe rank=2 incarnation=0 view world of 0,2 at step 0");  // ranks 0-1 are the first host's
  find(first + ":1\n" + second + ":2\n");
  launched.await_err("lockstep run: " + second + " has 2 slots: rank 3 is started\n");
  launched.await("[3] probe rank=3 incarnation=1 view world#2 of 0,2,3 at step");
  find(second + ":2\n" + first + ":2\n");
  launched.await("[1] probe rank=1 incarnation=1 view world#3 of 0,2,3,1 at step");
  find(first + ":1\n");
  launched.await("[0] probe rank=0 incarnation=0 view world#4 of 0 at step");
  launched.send(SIGTERM);
  const Ending ending = launched.finish();
  EXPECT_EQ(ending.exit_code, 128 + SIGTERM);
  EXPECT_THAT(ending.err, ContainsRegex("rank 3 is ended: " + second + " has 0 slots now"));
}

}  // namespace
}  // namespace lockstep::testing
