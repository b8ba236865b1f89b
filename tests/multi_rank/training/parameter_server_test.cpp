// Parameter servers on processes: what workers compute, and what happens when they die, stop, throw, and come back.
#include <chrono>
#include <fstream>
#include <random>
#include <thread>

#include "tests/support/http_client.h"
#include "tests/support/ssh_job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class ParameterServers : public SshJobTest {
 protected:
  /// `words`: options of `lockstep run`, then "--", then those of ps_rank.
  Process begin(const std::vector<std::string>& words, const Variables& variables = {},
                int network = -1) const {
    std::vector<std::string> command = {program("lockstep"), "run", "--no-prefix"};
    for (const std::string& word : words) command.push_back(word == "--" ? program("ps_rank") : word);
    return start(command, variables, network);
  }
  Ending launch(const std::vector<std::string>& words, const Variables& variables = {},
                int network = -1) const {
    return begin(words, variables, network).finish();
  }
  void expect(const Ending& ending, const std::vector<std::string>& lines) const {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    for (const std::string& line : lines) EXPECT_THAT(ending.out, HasSubstr(line + "\n")) << ending.err;
  }
  static std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
    return count;
  }
};

TEST_F(ParameterServers, WithOneWorkerDoWhatItsOptimizerWould) {
  expect(launch({"-np", "2", "--", "alone", "staleness=none"}), {"rank 1 the same"});
}

TEST_F(ParameterServers, SynchronousIsDataParallelTraining) {
  expect(launch({"-np", "4", "--", "together"}), {"rank 1 the same", "rank 2 the same", "rank 3 the same"});
  expect(launch({"-np", "5", "--", "together", "servers=2"}),
         {"rank 2 the same", "rank 3 the same", "rank 4 the same"});
}

TEST_F(ParameterServers, HaveWorkersThatComputeOnAnotherDevice) {
  expect(launch({"-np", "3", "--", "together", "device=other"}), {"rank 1 the same", "rank 2 the same"});
  expect(launch({"-np", "3", "--", "rows", "device=other", "sparse=no"}),
         {"rank 1 the same", "rank 2 the same"});
}

TEST_F(ParameterServers, AllowNoReadThatIsOlderThanTheBound) {
  for (const char* bound : {"staleness=0", "staleness=1", "staleness=3"}) {
    const Ending ending = launch({"-np", "4", "--", "bounded", bound, "steps=100"});
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    for (const char* rank : {"rank 1 was ", "rank 2 was ", "rank 3 was "})
      EXPECT_THAT(ending.out, HasSubstr(rank));
  }
}

TEST_F(ParameterServers, HaveTablesOfWhichWorkersTakeRows) {
  expect(launch({"-np", "4", "--", "rows"}), {"rank 1 the same", "rank 2 the same", "rank 3 the same"});
  expect(launch({"-np", "4", "--", "rows", "servers=2"}), {"rank 2 the same", "rank 3 the same"});
  expect(launch({"-np", "4", "--", "rows", "rows_first=1"}),
         {"rank 1 the same", "rank 2 the same", "rank 3 the same"});
}

TEST_F(ParameterServers, OnTwoHostsDoTheSame) {
  REQUIRE_SSH_HOSTS(2);
  const Variables variables = {{"LOCKSTEP_SSH", servers().client()}};
  expect(launch({"-H", list(2), "--", "together"}, variables, hosts().network(0)),
         {"rank 1 the same", "rank 3 the same"});
  expect(launch({"-H", list(2), "--", "rows", "servers=2"}, variables, hosts().network(0)),
         {"rank 3 the same"});
}

TEST_F(ParameterServers, GiveTasksToWorkersAndResultsToTheCoordinator) {
  expect(launch({"-np", "4", "--", "count", "staleness=none"}),
         {"rank 1 counted 20, done 20, failed 0", "rank 0 served 20 pushes, repeated 0"});
  expect(launch({"-np", "4", "--", "late", "staleness=2"}), {"rank 1 counted 40, done 40, failed 0"});
}

TEST_F(ParameterServers, HaveTheirRolesFromTfConfig) {
  const auto cluster = [&](const std::vector<std::pair<std::string, int>>& tasks, const std::string& action) {
    std::string text;
    for (const auto& [type, count] : tasks) {
      text += (text.empty() ? "\"" : ", \"") + type + "\": [";
      for (int i = 0; i < count; ++i)
        text += (i == 0 ? "\"127.0.0.1:" : ", \"127.0.0.1:") + std::to_string(another_port()) + "\"";
      text += "]";
    }
    std::vector<Process> ranks;
    for (const auto& [type, count] : tasks) {
      for (int i = 0; i < count; ++i)
        ranks.push_back(start({program("ps_rank"), action, "staleness=none"},
                              {{"TF_CONFIG", "{\"cluster\": {" + text + "}, \"task\": {\"type\": \"" + type +
                                                 "\", \"index\": " + std::to_string(i) + "}}"}}));
    }
    return finish(ranks);
  };
  const auto endings = cluster({{"worker", 2}, {"ps", 1}, {"chief", 1}}, "count");
  for (const Ending& ending : endings) EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(endings[2].out, HasSubstr("rank 0 served 20 pushes, repeated 0\n"));
  EXPECT_THAT(endings[3].out, HasSubstr("counted 20, done 20, failed 0\n"));

  const auto others = cluster({{"ps", 2}, {"worker", 1}}, "count");
  for (const Ending& ending : others) EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(
      others[1].err,
      HasSubstr("ParameterServer: rank 1 was given the role 'ps', but is a coordinator: the first ranks "
                "(1) are servers, the next one is the coordinator, the others work; TF_CONFIG's cluster "
                "has to have 1 \"ps\" and a \"chief\""));
  for (const std::size_t other : {0U, 2U}) {
    EXPECT_THAT(others[other].err,
                HasSubstr("ParameterServer: rank 1 was given a role that is not that of its place"));
  }
}

TEST_F(ParameterServers, EveryTaskCountsOnceWhoeverDies) {
  const int tasks = times_of_soak("SOAK_TASKS", 60);
  for (const int servers : {1, 2}) {
    const Ending ending = launch({"--role", "server:" + std::to_string(servers), "--role", "coordinator:1",
                                  "--role", "worker:3", "--restart", "worker", "--max-restarts", "65000",
                                  "--", "count", "staleness=none", "servers=" + std::to_string(servers),
                                  "tasks=" + std::to_string(tasks), "die_percent=40", "attempts=1000"});
    const std::string all = std::to_string(tasks);
    expect(ending, {"rank " + std::to_string(servers) + " counted " + all + ", done " + all + ", failed 0"});
    EXPECT_THAT(ending.out, HasSubstr("rank 0 served " + all + " pushes, repeated "));
    std::printf("parameter servers: %d servers, %zu deaths of workers in %d tasks, counted exactly\n",
                servers, count_of(ending.err, "was killed by signal 9"), tasks);
  }
}

TEST_F(ParameterServers, GiveUpATaskThatAlwaysFailsAndNameIt) {
  const Ending ending = launch({"-np", "4", "--", "count", "staleness=none", "throw_at=7"});
  expect(ending, {"rank 1 counted 19, done 19, failed 1"});
  EXPECT_THAT(
      ending.out,
      ContainsRegex("rank 1 task 7 \\(count\\) failed after 3 attempts: on rank [23]: told to throw\n"));
  EXPECT_THAT(
      launch({"-np", "3", "--", "unknown", "staleness=none"}).out,
      HasSubstr(
          "rank 1 task 21 (other) failed after 3 attempts: on rank 2: nothing is done with tasks called "
          "'other': on() names what is\n"));
}

TEST_F(ParameterServers, SynchronousGoOnWithoutAWorkerThatDies) {
  Process job = begin({"--role", "server:1", "--role", "worker:3", "--tolerate", "worker", "--", "loop",
                       "deed=die", "by=2", "at=20"});
  job.await("rank 2 is at 20\n");
  job.await_err("the job goes on without it\n");
  job.await("is past 200\n");
  job.send(SIGTERM);
  (void)job.finish();
}

TEST_F(ParameterServers, GoOnWithoutAWorkerThatDoesNotAnswer) {
  const Ending ending =
      launch({"--role", "server:1", "--role", "coordinator:1", "--role", "worker:2", "--tolerate", "worker",
              "--", "count", "staleness=2", "deed=stop", "by=3", "at=4", "attempts=9"},
             {{"LOCKSTEP_TIMEOUT", "3s"}});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("rank 1 counted 20, done 20, failed 0\n")) << ending.err;
}

TEST_F(ParameterServers, GiveUpATaskWhoseGradientsAreNoNumbers) {
  const std::vector<std::string> words = {"-np", "4", "--", "count", "staleness=none", "nan_at=7"};
  const auto with = [&](const std::string& policy) {
    auto all = words;
    all.push_back("non_finite=" + policy);
    return launch(all);
  };
  const Ending stopped = with("stop");
  expect(stopped, {"rank 1 counted 19, done 19, failed 1"});
  EXPECT_THAT(
      stopped.out,
      ContainsRegex("rank 1 task 7 \\(count\\) failed after 3 attempts: on rank ([23]): ParameterServer: the "
                    "gradient of parameter count on rank [23] is infinite or no number; nothing was pushed"));
  expect(with("skip"), {"rank 1 counted 19, done 20, failed 0"});
}

// Synchronous: what the others and the server have of it is as if it had not been.
TEST_F(ParameterServers, GoOnWithoutAWorkerWhoseGradientsAreNoNumbers) {
  const Ending ending = launch({"--role", "server:1", "--role", "worker:3", "--tolerate", "worker", "--",
                                "loop", "until=40", "non_finite=stop", "deed=nan", "by=2", "at=20"});
  expect(ending, {"rank 1 is done", "rank 3 is done"});
  EXPECT_THAT(ending.err,
              HasSubstr("rank 2 failed: ParameterServer: the gradient of parameter 0.weight on rank 2 is "
                        "infinite or no number; nothing was pushed. Lower the learning rate, clip "
                        "gradients, or skip such pushes (NonFinite::skip)"));
}

// Any of them, at any moment; with tasks each counts once all the same.
TEST_F(ParameterServers, GoOnWhicheverWorkerIsHurt) {
  const Variables impatient = {{"LOCKSTEP_TIMEOUT", "1s"}};
  std::mt19937 random(std::random_device{}());
  for (const std::string deed : {"die", "stop", "throw", "nan"}) {
    for (int round = 0; round < times_of_soak("SOAK_HURTS", 1); ++round) {
      const int by = 1 + static_cast<int>(random() % 3);
      const std::string at = "at=" + std::to_string(random() % 30);
      SCOPED_TRACE(deed + " by " + std::to_string(by) + " " + at);
      const Ending steps =
          launch({"--role", "server:1", "--role", "worker:3", "--tolerate", "worker", "--", "loop",
                  "until=40", "non_finite=stop", "deed=" + deed, "by=" + std::to_string(by), at},
                 impatient);
      EXPECT_EQ(steps.exit_code, 0) << steps.err;
      for (int worker = 1; worker <= 3; ++worker)
        EXPECT_EQ(count_of(steps.out, "rank " + std::to_string(worker) + " is done\n"), worker == by ? 0 : 1);
      EXPECT_THAT(steps.err, ContainsRegex("rank " + std::to_string(by) + " .*goes on without it"));
      const std::string its = std::to_string(2 + static_cast<int>(random() % 2));
      expect(launch({"--role", "server:1", "--role", "coordinator:1", "--role", "worker:2", "--tolerate",
                     "worker", "--", "count", "staleness=2", "non_finite=stop", "own=1", "deed=" + deed,
                     "by=" + its, "at=" + std::to_string(1 + random() % 6)},
                    impatient),
             {"rank 1 counted 20, done 20, failed 0"});
    }
  }
}

TEST_F(ParameterServers, TellTheirNumbersToMetricsWhileTheyRun) {
  Process job = begin({"-np", "3", "--metrics", std::to_string(port()), "--", "loop", "staleness=2"});
  job.await_err("lockstep run: metrics are at ");
  double pushes = 0, pulls = 0, workers = 0, lead = 0;
  for (const Deadline limit = http::patience(); pushes < 300 && !limit.expired();) {
    const std::string answer = http::ask(port(), "GET /metrics HTTP/1.1");
    const auto counter = [&](const std::string& name) {
      const std::string key = "lockstep_counter{name=\"parameter server " + name + "\",rank=\"0\"} ";
      const auto found = answer.find(key);
      return found == std::string::npos ? 0.0 : std::stod(answer.substr(found + key.size()));
    };
    pushes = counter("pushes");
    pulls = counter("pulls");
    workers = counter("workers");
    lead = counter("lead");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_GE(pushes, 300);
  EXPECT_GE(pulls, pushes - 1000);
  EXPECT_EQ(workers, 2);
  EXPECT_LE(lead, 3);
  job.send(SIGTERM);
  (void)job.finish();
}

TEST_F(ParameterServers, WaitForACoordinatorThatIsBusyWithOtherThings) {
  const Variables impatient = {{"LOCKSTEP_TIMEOUT", "2s"}};
  expect(launch({"-np", "4", "--", "count", "staleness=1", "idle_ms=3000"}, impatient),
         {"rank 1 counted 20, done 20, failed 0"});
  expect(launch({"--role", "server:1", "--role", "coordinator:1", "--role", "worker:2", "--restart", "worker",
                 "--", "count", "staleness=1", "idle_ms=3000"},
                impatient),
         {"rank 1 counted 20, done 20, failed 0"});
}

TEST_F(ParameterServers, SayThatTheCoordinatorHasGoneWithoutEndingTheJob) {
  const Ending ending = launch({"--role", "server:1", "--role", "coordinator:1", "--role", "worker:1",
                                "--restart", "worker", "--", "leaves", "staleness=none"});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, HasSubstr("rank 0 failed: ParameterServer: the coordinator has gone without ending "
                                    "the job, as its run() does: "));
}

TEST_F(ParameterServers, SynchronousRefuseAPushWithoutAPull) {
  const Ending ending = launch({"-np", "3", "--", "loop", "twice=1"});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, HasSubstr("failed: ParameterServer: synchronous, a worker pulls before each push, "
                                    "and this one has pushed already"));
}

TEST_F(ParameterServers, WithoutAnyWorkerGiveUpAfterAWhile) {
  const Ending ending = launch({"--role", "server:1", "--role", "worker:1", "--tolerate", "worker", "--",
                                "loop", "deed=die", "by=1", "at=3", "wait=1"});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, HasSubstr("rank 0 failed: ParameterServer: no worker is in the job for 1 s"));
}

TEST_F(ParameterServers, SaveAndGoOn) {
  const std::string path = "checkpoint=" + (folder() / "state").string();
  for (const char* counted : {"rank 2 counted 20, ", "rank 2 counted 40, "}) {
    const Ending ending = launch({"-np", "4", "--", "save", "staleness=none", "servers=2", path});
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, HasSubstr(counted));
  }
  std::ofstream(folder() / "state.0-of-2") << "no checkpoint";
  const Ending ending = launch({"-np", "4", "--", "save", "staleness=none", "servers=2", path});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, HasSubstr("state.0-of-2' is no checkpoint of a parameter server: "));
}

TEST_F(ParameterServers, RefuseACheckpointOfOtherServers) {
  const std::string path = "checkpoint=" + (folder() / "state").string();
  const auto with = [&](const std::string& servers) {
    return launch({"-np", "5", "--", "save", "staleness=none", path, "servers=" + servers});
  };
  EXPECT_EQ(with("2").exit_code, 0);
  const Ending more = with("3");
  EXPECT_EQ(more.exit_code, 1);
  EXPECT_THAT(more.err,
              HasSubstr("/state.0-of-2' was saved by another number of servers than 3: start as many, or "
                        "remove it"));
  std::filesystem::remove(folder() / "state.1-of-2");
  const Ending half = with("2");
  EXPECT_EQ(half.exit_code, 1);
  EXPECT_THAT(half.err, HasSubstr("/state.1-of-2 is missing, and other servers have theirs: "));
}

TEST_F(ParameterServers, GoOnFromOneSaveWhereverTheLastWasCutShort) {
  const auto state = [&](const std::string& name) { return folder() / ("state." + name); };
  const auto counted_from = [&](const std::vector<std::pair<std::string, std::string>>& files) {
    for (const char* name : {"0-of-2", "0-of-2.new", "1-of-2", "1-of-2.new"})
      std::filesystem::remove(state(name));
    for (const auto& [from, to] : files) std::filesystem::copy_file(folder() / from, state(to));
    const Ending ending = launch({"-np", "4", "--", "save", "staleness=none", "servers=2",
                                  "checkpoint=" + (folder() / "state").string()});
    EXPECT_FALSE(std::filesystem::exists(state("0-of-2.new")) ||
                 std::filesystem::exists(state("1-of-2.new")));
    const auto begin = ending.out.find("rank 2 counted ");
    return begin == std::string::npos ? ending.err : ending.out.substr(begin + 15, 2);
  };
  const auto keep = [&](const std::string& as) {
    for (const std::string server : {"0", "1"})
      std::filesystem::copy_file(state(server + "-of-2"), folder() / (as + server));
  };
  EXPECT_EQ(counted_from({}), "20");
  keep("old");
  EXPECT_EQ(counted_from({{"old0", "0-of-2"}, {"old1", "1-of-2"}}), "40");
  keep("new");
  // The first server's is on the disk; both are; the last one's is in place; so are both.
  EXPECT_EQ(counted_from({{"old0", "0-of-2"}, {"new0", "0-of-2.new"}, {"old1", "1-of-2"}}), "40");
  EXPECT_EQ(
      counted_from({{"old0", "0-of-2"}, {"new0", "0-of-2.new"}, {"old1", "1-of-2"}, {"new1", "1-of-2.new"}}),
      "60");
  EXPECT_EQ(counted_from({{"old0", "0-of-2"}, {"new0", "0-of-2.new"}, {"new1", "1-of-2"}}), "60");
  EXPECT_EQ(counted_from({{"new0", "0-of-2"}, {"new1", "1-of-2"}}), "60");
  // The first save of all: not finished, and finished.
  EXPECT_EQ(counted_from({{"old0", "0-of-2.new"}}), "20");
  EXPECT_EQ(counted_from({{"old0", "0-of-2.new"}, {"old1", "1-of-2.new"}}), "40");
  EXPECT_THAT(counted_from({{"old0", "0-of-2"}, {"new1", "1-of-2"}}),
              HasSubstr("/state.1-of-2 is of another save than "));
}

TEST_F(ParameterServers, OfASaveThatOneServerCannotWriteHaveTheOneBefore) {
  const std::string path = "checkpoint=" + (folder() / "state").string();
  const auto save = [&] { return launch({"-np", "4", "--", "save", "staleness=none", "servers=2", path}); };
  EXPECT_EQ(save().exit_code, 0);
  std::filesystem::create_directories(folder() / "state.1-of-2.new");  // in the second one's way
  const Ending refused = save();
  EXPECT_EQ(refused.exit_code, 1);
  std::filesystem::remove_all(folder() / "state.1-of-2.new");
  EXPECT_FALSE(std::filesystem::exists(folder() / "state.0-of-2.new"));
  EXPECT_THAT(save().out, HasSubstr("rank 2 counted 40, "));
}

TEST_F(ParameterServers, RefuseAWorkerWithOtherFrozenValues) {
  const Ending ending = launch({"-np", "3", "--", "together", "other_frozen=2"});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err,
              HasSubstr("rank 2 failed: ParameterServer: rank 2 has another model (or frozen values), "));
}

TEST_F(ParameterServers, RefuseAParameterThatWasFrozen) {
  const Ending ending = launch({"-np", "3", "--", "loop", "thaw=5"});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err,
              HasSubstr("failed: ParameterServer: parameter 0.weight wants a gradient, and wanted none when "
                        "this was made: make another one"));
}

TEST_F(ParameterServers, ThatCannotWriteSaySo) {
  const Ending ending = launch({"-np", "3", "--", "save", "staleness=none", "checkpoint=/nowhere/state"});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, ContainsRegex("rank 1 failed: [^\n]*/nowhere/state"));
}

TEST_F(ParameterServers, TellAWorkerThatHasAnotherModel) {
  const Ending ending = launch({"-np", "3", "--", "together", "other_model=2"});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(
      ending.err,
      HasSubstr(
          "rank 2 failed: ParameterServer: rank 2 has another model (or frozen values), other tables, or "
          "another optimizer or staleness than the server, rank 0; start the same program"));
}

TEST_F(ParameterServers, EndTheJobWhenAServerOrTheCoordinatorDies) {
  const Ending server = launch({"--role", "server:1", "--role", "worker:2", "--restart", "worker", "--",
                                "loop", "deed=die", "by=0", "at=0"});
  EXPECT_EQ(server.exit_code, 137);
  EXPECT_THAT(server.err, ContainsRegex("lockstep run: rank 0 \\(pid [0-9]+\\) was killed by signal 9"));
  const Ending coordinator =
      launch({"--role", "server:1", "--role", "coordinator:1", "--role", "worker:2", "--restart", "worker",
              "--", "count", "staleness=none", "deed=die", "by=1", "at=0"});
  EXPECT_EQ(coordinator.exit_code, 137);
  EXPECT_THAT(coordinator.err, ContainsRegex("lockstep run: rank 1 \\(pid [0-9]+\\) was killed by signal 9"));
}

// Workers that wait for it are not started again and again, and those that have no time-out do not wait for ever.
TEST_F(ParameterServers, EndTheJobWhenAServerOrTheCoordinatorIsStopped) {
  const std::vector<std::string> restarts = {"--role",         "worker:2", "--restart", "worker",
                                             "--max-restarts", "100",      "--"};
  const auto expect_stopped = [&](const std::string& rank, std::vector<std::string> words,
                                  const std::vector<std::string>& task) {
    words.insert(words.end(), restarts.begin(), restarts.end());
    words.insert(words.end(), task.begin(), task.end());
    const Ending ending = launch(words, {{"LOCKSTEP_TIMEOUT", "1s"}});
    EXPECT_EQ(ending.exit_code, 1);
    EXPECT_THAT(ending.err, ContainsRegex("lockstep run: rank " + rank +
                                          " \\(pid [0-9]+\\) was stopped \\(as by "
                                          "SIGSTOP\\) while others waited for it until a time-out, and was "
                                          "ended by the launcher\n"));
    EXPECT_LE(count_of(ending.err, "it is started again"), 2);
  };
  expect_stopped("0", {"--role", "server:1"}, {"loop", "deed=stop", "by=0", "at=0"});
  expect_stopped("1", {"--role", "server:1", "--role", "coordinator:1"},
                 {"count", "staleness=none", "deed=stop", "by=1", "at=0"});
}

TEST_F(ParameterServers, SayWhatCannotBe) {
  for (const auto& [words, text] :
       {std::pair(std::vector<std::string>{"-np", "1", "--", "together"},
                  "ParameterServer: of 1 ranks 1 are servers; nobody is left to work"),
        {{"-np", "2", "--", "together", "servers=0"}, "ParameterServer: servers is 0; there is 1 or more"},
        {{"-np", "2", "--", "together", "staleness=-1"},
         "ParameterServer: staleness is -1; it is 0 (synchronous) or more, or nullopt (unbounded)"},
        {{"-np", "3", "--", "count", "attempts=0"},
         "ParameterServer: most_attempts is 0; a task has 1 or more"},
        {{"--role", "worker:2", "--role", "server:1", "--", "together"},
         "ParameterServer: rank 0 was given the role 'worker', but is a server: the first ranks (1) are "
         "servers, the others "
         "work; say --role server:1 --role worker:N in this order"}}) {
    const Ending ending = launch(words);
    EXPECT_EQ(ending.exit_code, 1);
    EXPECT_THAT(ending.err, HasSubstr(text));
  }
}

}  // namespace
}  // namespace lockstep::testing
