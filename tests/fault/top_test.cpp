// `lockstep top`: what it says of jobs that run, that wait, that are killed meanwhile, and where there is none or several.
#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/support/http_client.h"
#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

class Top : public JobTest {
 protected:
  /// A job whose ranks do `actions` and then wait to be ended.
  Process job(std::vector<std::string> actions, int ranks = 2, const Variables& variables = {}) const {
    std::vector<std::string> words = {program("lockstep"), "run", "-np", std::to_string(ranks),
                                      program("probe_rank")};
    words.insert(words.end(), actions.begin(), actions.end());
    return start(words, variables);
  }
  Process top(std::vector<std::string> options) const {
    options.insert(options.begin(), {program("lockstep"), "top", "--interval", "100ms"});
    return start(options);
  }
  static std::vector<std::string> of(const Process& job) { return {"--pid", std::to_string(job.pid())}; }
  json json_of(const Process& job) const {
    auto options = of(job);
    options.emplace_back("--json");
    const Ending ending = top(options).finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    return json::parse(ending.out);
  }
  /// Looks until rank `rank` is seen to be in a state that has `text`.
  json await_state(const Process& job, std::size_t rank, const std::string& text) const {
    for (const Deadline limit = Deadline::after(std::chrono::seconds(60)); !limit.expired();) {
      json seen = json_of(job);
      if (seen["ranks"][rank]["state"].get<std::string>().find(text) != std::string::npos) return seen;
    }
    ADD_FAILURE() << "rank " << rank << " is never seen to be " << text;
    return {};
  }
  /// Looks until rank 0 is seen to make calls, and ranks to be the last that make one.
  json await_last_arrivals(const Process& job) const {
    for (const Deadline limit = Deadline::after(std::chrono::seconds(60)); !limit.expired();) {
      json seen = json_of(job);
      int last = 0;
      for (const json& rank : seen["ranks"]) last += rank["last_arrivals"].get<int>();
      if (last > 0 && seen["ranks"][0]["calls_per_second"] > 0) return seen;
    }
    ADD_FAILURE() << "no calls are ever seen";
    return {};
  }
  /// Until it has the job's page, which it looks for after it has seen to signals.
  static void await_look(const Process& top) {
    const std::string maps = "/proc/" + std::to_string(top.pid()) + "/maps";
    const auto looks = [&] { return text_in(maps).find("lockstep-control") != std::string::npos; };
    for (const Deadline limit = Deadline::after(std::chrono::seconds(60)); !looks();)
      ASSERT_FALSE(limit.expired());
  }
  static void end(Process& job) {
    job.send(SIGTERM);
    (void)job.finish();
  }
};

TEST_F(Top, AJobThatCommunicates) {
  Process job = this->job({"say,begun", "many_barriers,100000000"});
  job.await("begun");
  const json seen = await_last_arrivals(job);
  EXPECT_EQ(seen["pid"], job.pid());
  EXPECT_EQ(seen["ranks_in_all"], 2);
  ASSERT_EQ(seen["ranks"].size(), 2U);
  EXPECT_GT(seen["ranks"][0]["resident_bytes"], 100'000);
  EXPECT_FALSE(seen["ranks"][0].contains("step_seconds"));
  EXPECT_FALSE(seen["ranks"][0].contains("images_per_second"));
  const Ending ending = top(of(job)).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(ending.err, "");
  EXPECT_THAT(ending.out,
              MatchesRegex("job [0-9a-f]{16} \\(pid " + std::to_string(job.pid()) +
                           "\\): 2 ranks, [^\n]+\n *rank +pid +steps[^\n]*state\n( *[01] [^\n]*\n){2}"));
  EXPECT_THAT(ending.out, Not(HasSubstr("\x1b")));
  end(job);
}

TEST_F(Top, ARankThatOthersWaitFor) {
  Process job =
      this->job({"counter,images/s,12.5", "barrier", "1:say,sleeps", "1:pause", "all_reduce,f32,100"});
  job.await("sleeps");
  const json seen = await_state(job, 0, "for rank 1 in all_reduce");
  EXPECT_EQ(seen["ranks"][1]["state"], "running");
  EXPECT_EQ(seen["ranks"][1]["images_per_second"], 12.5);
  EXPECT_GT(seen["ranks"][0]["blocked_share"], seen["ranks"][1]["blocked_share"]);
  EXPECT_THAT(top(of(job)).finish().out, ContainsRegex("images/s[^\n]*\n *0 [^\n]* 12\\.5 "));
  end(job);
}

TEST_F(Top, ARankThatIsStopped) {
  Process job = this->job({"barrier", "1:say,stops", "1:raise,19", "barrier"});
  job.await("stops");
  (void)await_state(job, 1, "stopped");
  end(job);
}

TEST_F(Top, ARankThatHasEnded) {
  Process job = this->job({"barrier", "say,begun", "1:return,0", "0:pause"});
  job.await("begun");
  (void)await_state(job, 1, "ended");
  end(job);
}

TEST_F(Top, AJobThatIsKilledMeanwhileHasEnded) {
  Process job = this->job({"say,begun", "pause"});
  job.await("begun");
  Process top =
      start({program("lockstep"), "top", "--once", "--interval", "1h", "--pid", std::to_string(job.pid())});
  await_look(top);
  job.send(SIGKILL);
  (void)job.finish();
  const Ending ending = top.finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("\nthe job has ended\n"));
}

TEST_F(Top, CtrlCEndsItAndNotTheJob) {
  Process job = this->job({"say,begun", "read", "say,goes on"}, 1);
  job.await("begun");
  Process top = start({program("lockstep"), "top", "--interval", "1h", "--pid", std::to_string(job.pid())});
  await_look(top);
  top.send(SIGINT);
  EXPECT_EQ(top.finish().exit_code, 0);
  job.type("\n");
  EXPECT_EQ(job.finish().exit_code, 0);
}

TEST_F(Top, NamesAreWrittenOut) {
  auto ranks = start_probes(2, {"say,begun", "pause"}, {{"LOCKSTEP_JOB", "a\x1b[2Jb"}});
  ranks[0].await("begun");
  EXPECT_THAT(top(of(ranks[0])).finish().out, HasSubstr("job a\\x1b[2Jb (pid "));
  EXPECT_EQ(json_of(ranks[0])["job"], "a\x1b[2Jb");
  for (Process& rank : ranks) end(rank);
}

TEST_F(Top, AJobByItsName) {
  Process job = this->job({"say,begun", "pause"}), another = this->job({"say,begun", "pause"});
  job.await("begun");
  another.await("begun");
  const std::string name = json_of(job)["job"];
  const json found = json::parse(top({"--json", "--job", name.substr(0, 12)}).finish().out);
  EXPECT_EQ(found["pid"], job.pid());
  const Ending several = top({}).finish();
  EXPECT_EQ(several.exit_code, 2);
  EXPECT_THAT(several.err, ContainsRegex("--pid " + std::to_string(job.pid()) + " +--job " + name + " "));
  EXPECT_THAT(several.err, ContainsRegex("--pid " + std::to_string(another.pid()) + " "));
  end(job);
  end(another);
}

TEST_F(Top, WhatCannotBeIsOneClearError) {
  const Ending none = top({"--job", "no-job-has-this-name"}).finish();
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_EQ(none.err, "lockstep top: no job of yours on this host is called no-job-has-this-name\n");
  const Ending without_job = top({"--pid", std::to_string(::getpid())}).finish();
  EXPECT_EQ(without_job.exit_code, 2);
  EXPECT_THAT(without_job.err, HasSubstr("has joined no job of Lockstep"));
  EXPECT_THAT(start({program("lockstep"), "top", "--interval", "0"}).finish().err,
              HasSubstr("--interval 0 is not from 50ms to 1h"));
}

TEST_F(Top, OfTwoHostsThisHostsRanks) {
  REQUIRE_TWO_HOSTS();
  auto probes = start_probes_on_two_hosts(2, {"say,begun", "pause"});
  for (Process& probe : probes) probe.await("begun");
  EXPECT_THAT(top(of(probes[0])).finish().out, HasSubstr(": 2 ranks, "));
  const json seen = json_of(probes[1]);
  EXPECT_EQ(seen["ranks_in_all"], 2);
  ASSERT_EQ(seen["ranks"].size(), 1U);
  EXPECT_EQ(seen["ranks"][0]["rank"], 1);
  EXPECT_THAT(top(of(probes[1])).finish().out,
              HasSubstr("; the 1 rank of this host are shown, the others are on other hosts\n"));
  for (Process& probe : probes) end(probe);
}

TEST_F(Top, AJobAsAPageForWhoKnowsItsAddress) {
  Process job = this->job({"all_reduce,f32,1000", "barrier", "say,done", "pause"});
  job.await("done");
  Process page = start(
      {program("lockstep"), "top", "--pid", std::to_string(job.pid()), "--page", std::to_string(port())});
  const std::string server = "http://127.0.0.1:" + std::to_string(port());
  page.await("\n");
  ASSERT_THAT(page.out(), MatchesRegex("job [0-9a-f]{16} so far: " + server + "/[0-9a-f]{32}\n"));
  const std::string path = page.out().substr(page.out().find(server) + server.size(), 33);
  const std::string shown = http::ask(port(), "GET " + path + " HTTP/1.1");
  EXPECT_THAT(
      shown, AllOf(StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"),
                   HasSubstr("\r\nReferrer-Policy: no-referrer\r\n"), HasSubstr("Content-Security-Policy"),
                   HasSubstr("<meta http-equiv=\"refresh\""), HasSubstr("all_reduce"), HasSubstr("</html>")));
  for (const std::string& stranger : {std::string("/"), "/" + std::string(32, '0'), path + "0",
                                      path.substr(0, 32), std::string("/report.html")}) {
    const std::string refused = http::ask(port(), "GET " + stranger + " HTTP/1.1");
    EXPECT_THAT(refused,
                AllOf(StartsWith("HTTP/1.1 404 Not Found\r\n"),
                      HasSubstr("This page's address has a token in it"), Not(HasSubstr("all_reduce"))));
  }
  EXPECT_THAT(http::ask(port(), "POST " + path + " HTTP/1.1"), StartsWith("HTTP/1.1 404 Not Found\r\n"));
  end(job);
  const Ending ending = page.finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("the job has ended\n"));
}

TEST_F(Top, APageOfAJobThatIsStoppedSaysSo) {
  Process job = this->job({"barrier", "say,done", "pause"});
  job.await("rank=1 done\n");
  const json seen = json_of(job);
  const auto stopped = seen["ranks"][1]["pid"].get<pid_t>();
  ASSERT_EQ(::kill(stopped, SIGSTOP), 0);
  (void)await_state(job, 1, "stopped");
  Process page = start(
      {program("lockstep"), "top", "--pid", std::to_string(job.pid()), "--page", std::to_string(port())});
  page.await("\n");
  const std::string path = page.out().substr(page.out().rfind('/'), 33);
  EXPECT_THAT(http::ask(port(), "GET " + path + " HTTP/1.1"),
              HasSubstr("\"sentence\":\"Rank 1 is stopped. "));
  ASSERT_EQ(::kill(stopped, SIGCONT), 0);
  end(job);
  (void)page.finish();
}

TEST_F(Top, OfAProcessAboveTwoJobsAsksWhich) {
  Process both = start({"/bin/sh", "-c",
                        program("lockstep") + " run -np 2 " + program("probe_rank") +
                            " barrier say,one pause & " + program("lockstep") + " run -np 2 " +
                            program("probe_rank") + " barrier say,two pause & wait"});
  both.await("rank=1 one\n");
  both.await("rank=1 two\n");
  const Ending ending = top({"--pid", std::to_string(both.pid()), "--once"}).finish();
  EXPECT_EQ(ending.exit_code, 2);
  EXPECT_THAT(ending.err,
              ContainsRegex("below process [0-9]+ there are several jobs: pass the process id of one's "
                            "`lockstep run`: ([0-9]+), ([0-9]+)"));
  std::string pids = ending.err.substr(ending.err.rfind(": ") + 2);
  for (const std::string& pid : {pids.substr(0, pids.find(',')), pids.substr(pids.find(' ') + 1)}) {
    EXPECT_EQ(top({"--pid", std::to_string(std::stoi(pid)), "--once"}).finish().exit_code, 0);
    EXPECT_EQ(::kill(std::stoi(pid), SIGTERM), 0);
  }
  (void)both.finish();
}

TEST_F(Top, APageWhosePortIsTakenSaysSo) {
  Process job = this->job({"say,begun", "pause"});
  job.await("begun");
  take_port();
  const Ending ending = start({program("lockstep"), "top", "--pid", std::to_string(job.pid()), "--page",
                               std::to_string(port())})
                            .finish();
  EXPECT_EQ(ending.exit_code, 2);
  EXPECT_THAT(ending.err, ContainsRegex("lockstep top: --page: port [0-9]+ on 127.0.0.1 is already in use"));
  EXPECT_EQ(start({program("lockstep"), "top", "--page", "--json"}).finish().exit_code, 2);
  EXPECT_EQ(start({program("lockstep"), "top", "--page", "70000"}).finish().exit_code, 2);
  end(job);
}

}  // namespace
}  // namespace lockstep::testing
