// Jobs that go on when ranks die: `lockstep run --tolerate`, --restart, --min-np and --role, with init() again after each change
// (probe_views), and with groups made of those who live while others work on (probe_members).
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include "tests/support/ssh_job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Views : public SshJobTest {
 protected:
  Process launch(std::vector<std::string> words, Variables variables = {}, int network = -1) const {
    words.insert(words.begin(), {program("lockstep"), "run"});
    return start(std::move(words), std::move(variables), network);
  }
  Ending run_views(std::vector<std::string> options, const std::vector<std::string>& deeds,
                   const Variables& variables = {}) const {
    options.push_back(program("probe_views"));
    options.insert(options.end(), deeds.begin(), deeds.end());
    return launch(options, variables).finish();
  }
  /// The pid that a rank has said.
  static pid_t pid_of(const std::string& out, int rank) {
    const std::string beginning = "probe rank=" + std::to_string(rank) + " pid=";
    return static_cast<pid_t>(std::stoi(out.substr(out.rfind(beginning) + beginning.size())));
  }
  /// Two ranks work on in a group of their own, while two others die again and again and all make a group of each view.
  static std::vector<std::string> mortal_lives() {
    const char* const lives = std::getenv("SOAK_LIVES");
    return {"--role",
            "steady:2",
            "--role",
            "mortal:2",
            "--restart",
            "mortal",
            "--max-restarts",
            "1000",
            program("probe_members"),
            std::string("--lives=") + (lives != nullptr ? lives : "4")};
  }
  static void expect_lives(const Ending& ending) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, AllOf(Not(HasSubstr("NOTICED")), Not(HasSubstr("WRONG"))));
    std::map<std::string, std::string> members;  // by view
    for (std::size_t at = 0; (at = ending.out.find(" view ", at)) != std::string::npos; ++at) {
      const std::string line = ending.out.substr(at, ending.out.find('\n', at) - at);
      EXPECT_EQ(members.emplace(line.substr(0, line.find(" of ")), line).first->second, line);
    }
    EXPECT_GE(members.size(), 3U) << ending.out;
    for (const char* rank : {"0", "1"}) {
      const auto figures =
          lines_with(ending.out, std::string("[") + rank + "] probe rank=" + rank + " views=");
      ASSERT_THAT(figures, ::testing::SizeIs(1)) << ending.out;
      std::cout << figures.front() << "\n";
      int before = 0, after = 0;
      const std::size_t memory = figures.front().find("memory_kib=");
      ASSERT_EQ(std::sscanf(figures.front().c_str() + memory, "memory_kib=%d..%d", &before, &after), 2);
#ifndef __SANITIZE_ADDRESS__  // which keeps what is freed
      // Few lives only fill tables.
      if (std::getenv("SOAK_LIVES") != nullptr) {
        EXPECT_LE(after, before * 21 / 20);
      }
#endif
    }
  }
  /// A file by which one rank's shell tells another's that a life began.
  std::string again() const { return folder() / "again"; }
  std::string wait_for_again() const { return "until [ -e " + again() + " ]; do sleep 0.02; done"; }
  static std::string done(int rank, int steps) {
    return "[" + std::to_string(rank) + "] probe rank=" + std::to_string(rank) + " done " +
           std::to_string(steps) + " steps\n";
  }
};

TEST_F(Views, GoOnWithoutARankThatDied) {
  const Ending ending = run_views({"-np", "3", "--min-np", "2"}, {"--steps=20", "--kill=1@5"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.err,
              ContainsRegex("lockstep run: rank 1 \\(pid [0-9]+\\) was killed by signal 9 \\(SIGKILL\\); the "
                            "job goes on without it\n"));
  EXPECT_THAT(ending.err, HasSubstr("lockstep run: view 2 has ranks 0, 2\n"));
  EXPECT_THAT(ending.out, AllOf(HasSubstr("[0] probe rank=0 incarnation=0 view world of 0,1,2 at step 0\n"),
                                HasSubstr("[2] probe rank=2 incarnation=0 view world#2 of 0,2 at step 5\n"),
                                HasSubstr(done(0, 20)), HasSubstr(done(2, 20)), Not(HasSubstr(done(1, 20)))));
  EXPECT_THAT(
      ending.out,
      ContainsRegex(
          "rank 1 \\(pid [0-9]+\\) died; the group is closed: shutdown\\(\\) and init\\(\\) give a world of "
          "those who are left"));
}

TEST_F(Views, StartARankAgainAlone) {
  const Ending ending = run_views({"-np", "3", "--restart", "all"},
                                  {"--steps=100", "--pause-us=200", "--kill=0@5", "--until=3"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(
      ending.err,
      AllOf(HasSubstr("SIGKILL); it is started again, restart 1 of 3\n"),
            HasSubstr("lockstep run: rank 0 is in the job again\nlockstep run: view 3 has ranks 0-2\n")));
  EXPECT_THAT(ending.out, AllOf(HasSubstr("[0] probe rank=0 incarnation=1 view world#3 of 1,2,0 at step "),
                                HasSubstr("[2] probe rank=2 incarnation=0 view world#3 of 1,2,0 at step "),
                                HasSubstr(done(0, 100)), HasSubstr(done(1, 100)), HasSubstr(done(2, 100))));
}

TEST_F(Views, EndTheJobWhereTooFewAreLeft) {
  const Ending ending = run_views({"-np", "3", "--min-np", "3"}, {"--steps=20", "--kill=1@5"});
  EXPECT_EQ(ending.exit_code, 137);
  EXPECT_THAT(ending.err, AllOf(ContainsRegex("lockstep run: rank 1 \\(pid [0-9]+\\) was killed by signal 9"),
                                HasSubstr("  2 ranks are left, and the job needs 3 (--min-np)\n")));
}

TEST_F(Views, EndWithTheLastRank) {
  const Ending ending = run_views({"-np", "3", "--tolerate", "all"},
                                  {"--steps=20", "--kill=0@5", "--kill=1@7", "--exit=2@9,4"});
  EXPECT_EQ(ending.exit_code, 4);
  EXPECT_THAT(ending.err, AllOf(HasSubstr("view 2 has ranks 1-2\n"), HasSubstr("view 3 has rank 2\n"),
                                HasSubstr("  no rank is left\n")));
}

TEST_F(Views, GiveUpARankThatDiesAtOnceAgainAndAgain) {
  const Ending ending = launch({"-np", "2", "--restart", "all", "--max-restarts", "2", "/bin/sh", "-c",
                                "echo life $LOCKSTEP_INCARNATION; [ $RANK = 0 ] && exec sleep 60; exit 3"})
                            .finish();
  EXPECT_EQ(ending.exit_code, 3);
  EXPECT_EQ(lines_with(ending.out, "[1] "),
            (std::vector<std::string>{"[1] life 0", "[1] life 1", "[1] life 2"}));
  EXPECT_THAT(ending.err,
              AllOf(HasSubstr("it is started again, restart 2 of 2\n"), Not(HasSubstr("restart 3")),
                    HasSubstr("  it was given up after 2 restarts\n")));
}

TEST_F(Views, GoOnWithoutARankThatWasGivenUp) {
  Process job = launch({"-np", "2", "--min-np", "1", "--max-restarts", "1", "/bin/sh", "-c",
                        "[ $RANK = 1 ] && exit 3; read line"});
  job.await_err("the job goes on without it");
  job.type("go on\n");
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.err, HasSubstr("restart 1 of 1\n"));
}

TEST_F(Views, SurviveTwoDeathsAtOnceAndAllButOne) {
  const Ending ending =
      run_views({"-np", "4", "--min-np", "1"}, {"--steps=30", "--kill=0@5", "--kill=3@5", "--kill=1@9"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, AllOf(HasSubstr("of 2 at step 9\n"), HasSubstr(done(2, 30))));
}

TEST_F(Views, SurviveDeathsBeforeAndInInit) {
  const Ending ending =
      run_views({"-np", "4", "--min-np", "2"}, {"--steps=30", "--kill=0@-1", "--exit=2@-1,7"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out,
              AllOf(HasSubstr("[3] probe rank=3 incarnation=0 view world#"), HasSubstr("of 1,3 at step 0\n"),
                    HasSubstr(done(1, 30)), HasSubstr(done(3, 30))));
}

TEST_F(Views, PutOutARankThatWasStoppedBeforeInit) {
  const Ending ending = run_views({"-np", "3", "--tolerate", "all"}, {"--steps=30", "--stop=1@-1"},
                                  {{"LOCKSTEP_INIT_TIMEOUT", "4s"}});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.err, AllOf(HasSubstr("lockstep run: rank 1 is out of the job, which goes on without it: "
                                          "rank 1 did not come to view 1 "
                                          "(LOCKSTEP_INIT_TIMEOUT says how long it is waited for)"),
                                HasSubstr(", which was out of the job, is ended with it\n")));
  EXPECT_THAT(ending.out, AllOf(HasSubstr("of 0,2 at step 0\n"), HasSubstr(done(0, 30))));
}

TEST_F(Views, TellARankThatWasStoppedThatItIsOut) {
  Process job = launch({"-np", "3", "--tolerate", "all", program("probe_views"), "--steps=3000",
                        "--pause-us=500", "--stop=1@50"},
                       {{"LOCKSTEP_TIMEOUT", "3s"}});
  job.await_err(
      "rank 1 is out of the job, which goes on without it: rank 1 did not arrive within 3 s\nlockstep run: "
      "view 2 has ranks 0, 2\n");
  job.await("view world#2 of 0,2 at step 50\n");
  ASSERT_EQ(::kill(pid_of(job.out(), 1), SIGCONT), 0);
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.err, AllOf(HasSubstr("[1] probe rank=1 code=aborted text=rank 1 is out of the job, "
                                          "which goes on without it: rank 1 did not "
                                          "arrive within 3 s\n"),
                                HasSubstr(" ended with exit code 1; it was out of the job\n")));
  EXPECT_THAT(ending.out, AllOf(HasSubstr(done(0, 3000)), HasSubstr(done(2, 3000)), Not(HasSubstr("WRONG"))));
}

TEST_F(Views, EndARankThatDoesNotAnswerAndStartItAgain) {
  const Ending ending =
      run_views({"-np", "3", "--restart", "all", "--max-restarts", "1"},
                {"--steps=100", "--pause-us=500", "--stop=1@5", "--until=3"}, {{"LOCKSTEP_TIMEOUT", "3s"}});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.err,
              AllOf(HasSubstr("lockstep run: rank 1 is ended: rank 1 did not arrive within 3 s\n"),
                    HasSubstr("it is started again, restart 1 of 1\n")));
  EXPECT_THAT(ending.out, AllOf(HasSubstr("of 0,2,1 at step "), HasSubstr(done(1, 100))));
}

TEST_F(Views, PutOutSeveralRanksThatWereStoppedAtOnce) {
  const Ending ending = run_views({"-np", "4", "--min-np", "1"}, {"--steps=30", "--stop=1@5", "--stop=2@5"},
                                  {{"LOCKSTEP_TIMEOUT", "3s"}});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(
      ending.err,
      AllOf(HasSubstr(
                "rank 1 is out of the job, which goes on without it: ranks 1, 2 did not arrive within 3 s\n"),
            HasSubstr(
                "rank 2 is out of the job, which goes on without it: ranks 1, 2 did not arrive within 3 s\n"),
            HasSubstr("lockstep run: view 2 has ranks 0, 3\n")));
  EXPECT_THAT(ending.out,
              AllOf(HasSubstr("of 0,3 at step 5\n"), HasSubstr(done(0, 30)), HasSubstr(done(3, 30))));
}

TEST_F(Views, SayWhyARankThatIsNeededWasEnded) {
  const Ending ending =
      run_views({"-np", "2", "--min-np", "2"}, {"--steps=2000", "--pause-us=500", "--stop=1@5"},
                {{"LOCKSTEP_TIMEOUT", "3s"}});
  EXPECT_EQ(ending.exit_code, 137);
  EXPECT_THAT(ending.err, AllOf(HasSubstr("(SIGKILL); by the launcher: rank 1 did not arrive within 3 s\n"),
                                HasSubstr("  1 rank is left, and the job needs 2 (--min-np)\n"),
                                Not(HasSubstr("out of memory"))));
  EXPECT_THAT(ending.out, Not(HasSubstr("world#2"))) << "a world of too few";
}

TEST_F(Views, EndARankThatIsStoppedWhenOthersHaveEnded) {
  const Ending ending =
      launch({"-np", "3", "--tolerate", "all", "/bin/sh", "-c", "[ $RANK = 1 ] && kill -STOP $$; sleep 0.1"},
             {{"LOCKSTEP_TIMEOUT", "1s"}})
          .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.err,
              AllOf(HasSubstr("rank 1 is out of the job, which goes on without it: it was stopped for "),
                    HasSubstr(", which was out of the job, is ended with it\n")));
}

TEST_F(Views, FailWhereTheLastRankCannotBeStartedAgain) {
  const std::filesystem::path program = folder() / "program";
  std::ofstream(program) << "#!/bin/sh\n[ $RANK = 0 ] && touch " << again() << " && exit 0\n"
                         << wait_for_again() << "; rm " << program << "; exit 4\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const Ending ending = launch({"-np", "2", "--restart", "all", program}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, AllOf(HasSubstr("lockstep run: rank 1: it could not be started again: "),
                                HasSubstr("  it was given up after 3 restarts\n")));
}

TEST_F(Views, NeedNobodyAnyMoreWhenOneIsDone) {
  const Ending ending = launch({"-np", "3", "--min-np", "3", "--max-restarts", "3", "/bin/sh", "-c",
                                "[ $RANK$LOCKSTEP_INCARNATION = 10 ] && exit 7; [ $RANK = 1 ] && touch " +
                                    again() + " && exec sleep 60; " + wait_for_again()})
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.err, HasSubstr(", which was started again, is ended: others are done\n"));
}

TEST_F(Views, LeaveThoseOutThatHaveEnded) {
  const Ending ending = run_views({"-np", "3", "--min-np", "1"}, {"--steps=20", "--exit=2@10,0"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, AllOf(HasSubstr("of 0,1 at step 10\n"), HasSubstr(done(0, 20))));
}

TEST_F(Views, EndThoseThatComeBackWhenOthersAreDone) {
  const Ending ending = launch({"-np", "2", "--min-np", "1", "--max-restarts", "1", "/bin/sh", "-c",
                                "[ $RANK$LOCKSTEP_INCARNATION = 11 ] && echo back && touch " + again() +
                                    " && exec sleep 60; [ $RANK = 1 ] && exit 3; " + wait_for_again()})
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("[1] back\n"));
  EXPECT_THAT(ending.err, HasSubstr(", which was started again, is ended: others are done\n"));
}

TEST_F(Views, AreNoneOfAJobThatIsToldToEnd) {
  Process job = launch({"-np", "2", "--restart", "all", "/bin/sh", "-c", "echo ready; exec sleep 60"});
  job.await("[0] ready");
  job.await("[1] ready");
  job.send(SIGINT);
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 130);
  EXPECT_THAT(ending.err, Not(HasSubstr("started again")));
}

TEST_F(Views, AreInTheFlightRecordOfAJobThatFailed) {
  const std::filesystem::path records = folder() / "records";
  const Ending ending = run_views({"-np", "3", "--min-np", "2"}, {"--steps=20", "--kill=1@5", "--kill=0@9"},
                                  {{"LOCKSTEP_RECORD_DIR", records.string()}});
  EXPECT_EQ(ending.exit_code, 137);
  std::string explained;
  for (const auto& entry : std::filesystem::directory_iterator(records))
    explained = start({program("lockstep"), "explain", entry.path().string()}).finish().out;
  EXPECT_THAT(explained, AllOf(HasSubstr("world#2"), HasSubstr("rank 1"))) << ending.err;
}

TEST_F(Views, AreInTheReport) {
  const std::string place = folder() / "report";
  const Ending ending =
      run_views({"-np", "3", "--min-np", "2", "--report", place}, {"--steps=20", "--kill=1@5"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(start({program("lockstep"), "report", place}).finish().out,
              ContainsRegex("\nWho came and went\n.*\n.*rank 1.*SIGKILL.* 2\n"));
}

TEST_F(Views, AreTheSameForAllAndDoNotDisturbGroupsOfOthers) {
  expect_lives(launch(mortal_lives()).finish());
}

TEST_F(Views, AreRefusedWhereRanksMayNotDie) {
  const Ending ending = launch({"-np", "2", program("probe_members")}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err,
              AllOf(HasSubstr("code=invalid_argument"), HasSubstr("--tolerate, --restart or --min-np")));
}

class Roles : public Views {};

TEST_F(Roles, HaveProgramsOfTheirOwn) {
  const std::string say = "echo $ROLE_NAME $ROLE_RANK of $ROLE_WORLD_SIZE, $RANK of $WORLD_SIZE";
  const Ending ending = launch({"--role", "server:1", "/bin/sh", "-c", say + ", serves", ":", "--role",
                                "worker:2", "/bin/sh", "-c", say + ", works"})
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, AllOf(HasSubstr("[0] server 0 of 1, 0 of 3, serves\n"),
                                HasSubstr("[1] worker 0 of 2, 1 of 3, works\n"),
                                HasSubstr("[2] worker 1 of 2, 2 of 3, works\n")));
}

TEST_F(Roles, ShareAProgram) {
  const Ending ending = launch({"--role", "a:1", "--role=b:1", "--", "/bin/sh", "-c",
                                "echo $ROLE_NAME : $LOCKSTEP_INCARNATION"})
                            .finish();
  EXPECT_THAT(ending.out, AllOf(HasSubstr("[0] a :\n"), HasSubstr("[1] b :\n"))) << ending.err;
}

TEST_F(Roles, SayWhoseDeathEndsTheJob) {
  const std::vector<std::string> words = {"--role",     "server:1", "--role",  "worker:2",
                                          "--tolerate", "worker",   "/bin/sh", "-c"};
  auto worker_dies = words, server_dies = words;
  worker_dies.emplace_back("[ $ROLE_NAME = worker ] && exit 3; exec sleep 0.5");
  server_dies.emplace_back("[ $ROLE_NAME = server ] && exit 3; exec sleep 60");
  const Ending well = launch(worker_dies).finish();
  EXPECT_EQ(well.exit_code, 0) << well.err;
  EXPECT_THAT(
      well.err,
      AllOf(ContainsRegex("rank 1 \\(pid [0-9]+\\) ended with exit code 3; the job goes on without it"),
            ContainsRegex("rank 2 \\(pid [0-9]+\\) ended with exit code 3; the job goes on without it")));
  EXPECT_EQ(launch(server_dies).finish().exit_code, 3);
}

TEST_F(Roles, ThatMakeNoSenseAreRefused) {
  const auto refused = [&](const std::vector<std::string>& words) {
    const Ending ending = launch(words).finish();
    EXPECT_EQ(ending.exit_code, 2) << ending.err;
    return ending.err;
  };
  EXPECT_THAT(refused({"--role", "a:1", "--role", "b:2", "--tolerate", "c", "true"}),
              HasSubstr("--tolerate c: there is no such role; there are a, b, and all means all of them"));
  EXPECT_THAT(
      refused({"-np", "2", "--restart", "worker", "true"}),
      HasSubstr(
          "--restart worker: there is no such role; --role NAME:RANKS makes some, and all means all ranks"));
  EXPECT_THAT(refused({"--role", "a:1", "--role", "b:2", "-np", "4", "true"}),
              HasSubstr("the roles have 3 ranks together, and there are to be 4 (-np)"));
  EXPECT_THAT(refused({"--role", "a:1", "true", ":", "ls"}),
              HasSubstr("after a \":\" stands --role NAME:RANKS"));
  EXPECT_THAT(refused({"--role", "a:1", "true", ":", "--np", "3", "ls"}),
              HasSubstr("\"--np\" after a \":\": only --role NAME:RANKS stands there"));
  EXPECT_THAT(refused({"--role", "all:2", "true"}), HasSubstr("a role has a name, which is not \"all\""));
  EXPECT_THAT(refused({"--role", "a:none", "true"}), HasSubstr("--role a=\"none\" is not a whole number"));
  EXPECT_THAT(refused({"--role", "a:1", "--role", "a:1", "true"}), HasSubstr("--role a is given twice"));
  EXPECT_THAT(refused({"--role", "a", "--role", "b", "-np", "2", "true"}),
              HasSubstr("several roles say how many ranks each has"));
  EXPECT_THAT(refused({"--role", "a:1", "true", ":", "--role", "b:1"}),
              HasSubstr("there is no program to run"));
  EXPECT_THAT(refused({"-np", "2", "--min-np", "3", "true"}),
              HasSubstr("--min-np=\"3\" is not a whole number from 1 to 2"));
  EXPECT_THAT(refused({"-np", "2", "--tolerate", "", "true"}), HasSubstr("--tolerate: is empty"));
  EXPECT_THAT(refused({"-np", "2", "true", ":", "-np", "1", "false"}), HasSubstr("Then each has a role"));
  EXPECT_THAT(refused({"-np", "2", "--max-np", "1", "true"}),
              HasSubstr("--max-np 1 is less than the 2 ranks"));
}

TEST_F(Views, AllIsDoneWhenAllRanksHaveEndedWithoutWhichTheJobCannotGoOn) {
  const Ending ending = launch({"--role", "steady:2", "--role", "worker:1", "--restart", "worker", "sh", "-c",
                                "if [ $ROLE_NAME = steady ]; then " + wait_for_again() +
                                    "; elif [ $LOCKSTEP_INCARNATION = 0 ]; then kill -9 $$; else touch " +
                                    again() + "; exec sleep 60; fi"})
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(
      ending.err,
      AllOf(HasSubstr("it is started again, restart 1 of 3\n"),
            ContainsRegex("rank 2 \\(pid [0-9]+\\), which was started again, is ended: others are done\n")));
}

class ViewsOnHosts : public Views {
 protected:
  Process launch_on_both(std::vector<std::string> words) const {
    words.insert(words.begin(), {"-H", list(2)});
    return launch(std::move(words), {{"LOCKSTEP_SSH", servers().client()}}, hosts().network(0));
  }
};

TEST_F(ViewsOnHosts, StartARankAgainWhereItWas) {
  REQUIRE_SSH_HOSTS(2);
  const Ending ending = launch_on_both({"--restart", "all", program("probe_views"), "--steps=1000",
                                        "--pause-us=500", "--kill=3@5", "--kill=0@100"})
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out,
              AllOf(HasSubstr("[3] probe rank=3 incarnation=1 view world#"),
                    HasSubstr("[0] probe rank=0 incarnation=1 view world#"), HasSubstr(done(0, 1000)),
                    HasSubstr(done(2, 1000)), HasSubstr(done(3, 1000)), Not(HasSubstr("WRONG"))));
}

TEST_F(ViewsOnHosts, GoOnWithoutAHostThatWasLost) {
  REQUIRE_SSH_HOSTS(2);
  Process job =
      launch_on_both({"--min-np", "2", program("probe_views"), "--steps=100", "--pause-us=500", "--until=2"});
  job.await("[3] probe rank=3 incarnation=0 view world of 0,1,2,3 at step 0");
  for (const pid_t agent : agents_of(1)) (void)::kill(agent, SIGKILL);
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.err,
              AllOf(ContainsRegex("rank 2 \\(pid [0-9]+\\): its host " + hosts().address(1) + " was lost"),
                    HasSubstr("the job goes on without it\n")));
  EXPECT_THAT(ending.out,
              AllOf(HasSubstr(" of 0,1 at step "), HasSubstr(done(0, 100)), HasSubstr(done(1, 100))));
}

TEST_F(ViewsOnHosts, AreTheSameForAllAndDoNotDisturbGroupsOfOthers) {
  REQUIRE_SSH_HOSTS(2);
  expect_lives(launch_on_both(mortal_lives()).finish());
}

}  // namespace
}  // namespace lockstep::testing
