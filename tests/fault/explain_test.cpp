// Jobs that hang or fail on purpose, and what `lockstep explain` makes of what they leave behind.
#include <fstream>
#include <thread>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;

// What the line of a rank that failed begins with. LeakSanitizer stops ranks that end, which the launcher may
// see and say.
const std::string rank_0_failed = "\n  rank 0 \\(pid [0-9]+\\): (stopped [^\n]*, )?";

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

class Explain : public JobTest {
 protected:
  fs::path records() const { return folder() / "records"; }
  Variables recorded() const {
    return {{"LOCKSTEP_TIMEOUT", "3s"}, {"LOCKSTEP_RECORD_DIR", records().string()}};
  }

  Ending explain(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = {program("lockstep"), "explain"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return start(words).finish();
  }

  /// What is said of a job of probes that fails, by the very command that the launcher names.
  std::string explanation(int ranks, const std::vector<std::string>& actions) const {
    const Ending job = launch_probes(ranks, actions, recorded());
    EXPECT_NE(job.exit_code, 0) << job.err;
    const std::string before = "lockstep run: `lockstep explain ";
    const auto lines = lines_with(job.err, before);
    EXPECT_THAT(lines, SizeIs(1)) << job.err;
    if (lines.empty()) return "";
    const std::string rest = lines.front().substr(before.size());
    const Ending said = explain({rest.substr(0, rest.find('`'))});
    EXPECT_EQ(said.exit_code, 0) << said.err;
    EXPECT_EQ(said.err, "");
    return said.out;
  }
};

TEST_F(Explain, AMismatchedBranch) {
  const std::string text =
      explanation(3, {"barrier", "!1:all_reduce,f32,100", "1:broadcast,400,0", "barrier"});
  EXPECT_EQ(
      first_line(text),
      "mismatch: as #1 in group \"world\" rank 1 called broadcast (400 bytes from rank 0), but ranks 0, "
      "2 called all_reduce (sum of f32 x 100)");
}

TEST_F(Explain, ADeadRank) {
  const std::string text =
      explanation(3, {"barrier", "all_reduce,f32,1000", "1:raise,9", "all_reduce,f32,100000"});
  EXPECT_THAT(first_line(text),
              MatchesRegex("dead rank: rank 1 \\(pid [0-9]+\\) was killed by signal 9 \\(SIGKILL\\) outside "
                           "of any collective, after all_reduce #1 \\(sum of f32 x 1000\\) in group "
                           "\"world\"; ranks 0, 2 waited for it in all_reduce #2 \\(sum of f32 x 100000\\) "
                           "in group \"world\""));
  EXPECT_THAT(text, ContainsRegex(rank_0_failed +
                                  "in all_reduce #2 [^\n]*, waiting for rank 1; ended with exit code 1\n"));
}

TEST_F(Explain, ARankThatLeftEarly) {
  EXPECT_THAT(first_line(explanation(2, {"barrier", "1:return,0", "all_reduce,f32,100000"})),
              MatchesRegex("dead rank: rank 1 \\(pid [0-9]+\\) ended with exit code 0 outside of any "
                           "collective, after barrier #0 in group \"world\"; rank 0 waited for it in "
                           "all_reduce #1 \\(sum of f32 x 100000\\) in group \"world\""));
}

TEST_F(Explain, ARankThatGaveACallUp) {
  // Rank 2 never comes: so none can be through with the call before it is given up.
  const std::string text =
      explanation(3, {"barrier", "2:pause", "1:throw,100000,0", "0:say_and_reduce,100000,1"});
  EXPECT_THAT(
      first_line(text),
      MatchesRegex("failed rank: rank 1 gave up all_reduce #1: an exception there ended it early; rank 0 "
                   "(waited for it in all_reduce #1 .sum of f32 x 100000. in group \"world\"|"
                   "was in all_reduce #1 .sum of f32 x 100000. in group \"world\" with it)"));
}

TEST_F(Explain, ASlowRank) {
  const std::string text = explanation(3, {"barrier", "1:pause", "all_reduce,f32,1000"});
  EXPECT_THAT(first_line(text),
              MatchesRegex("slow rank: rank 1 \\(pid [0-9]+\\) was outside of any collective for [0-9.]+ s, "
                           "after barrier #0 in group \"world\"; ranks 0, 2 waited [0-9.]+ s for it in "
                           "all_reduce #1 \\(sum of f32 x 1000\\) in group \"world\""));
  EXPECT_THAT(text, ContainsRegex("\n  rank 1 [^\n]*; ended by the launcher\n"));
}

TEST_F(Explain, AStoppedRank) {
  EXPECT_THAT(first_line(explanation(2, {"barrier", "1:raise,19", "all_reduce,f32,1000"})),
              MatchesRegex("slow rank: rank 1 \\(pid [0-9]+\\) was stopped \\(by SIGSTOP or a debugger\\), "
                           "outside of any collective for [0-9.]+ s, after barrier #0 in group \"world\"; "
                           "rank 0 waited [0-9.]+ s for it in all_reduce #1 .*"));
}

TEST_F(Explain, ARankInAnotherGroupsCollective) {
  const std::string text = explanation(
      3, {"barrier", "!0:subgroup,1-2", "barrier", "2:within,1-2,all_reduce,f32,10", "!2:barrier"});
  EXPECT_EQ(first_line(text),
            "crossed calls: rank 1 waited in barrier #2 in group \"world\" for rank 2, rank 2 waited in "
            "all_reduce #0 (sum of f32 x 10) in group \"world/1,2\" for rank 1: all ranks have to make these "
            "calls in one order");
  EXPECT_THAT(text, ContainsRegex(rank_0_failed +
                                  "in barrier #2 in group \"world\" for [0-9.]+ [a-z]+, waiting for rank 2"));
}

TEST_F(Explain, RanksThatAllReceiveFirst) {
  EXPECT_EQ(first_line(explanation(2, {"0:recv,10,1", "1:recv,10,0"})),
            "circle of messages: rank 0 waited in recv #0 (10 bytes) in group \"world\" for rank 1, "
            "rank 1 waited in recv #0 (10 bytes) in group \"world\" for rank 0: all receive first, "
            "or all send much");
}

class LiveJob : public Explain {
 protected:
  /// Asks until the first line fits.
  std::string await_first_line(pid_t pid, const std::string& expression) const {
    const Deadline deadline = Deadline::after(std::chrono::seconds(30));
    while (true) {
      const Ending said = explain({"--pid", std::to_string(pid)});
      const std::string line = first_line(said.out);
      const bool fits = ::testing::Matches(MatchesRegex(expression))(line);
      if (fits || deadline.expired()) return fits ? "as expected" : line + said.err;
      // The job does not say when it has come so far.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
};

TEST_F(LiveJob, IsExplainedWithoutHarmToIt) {
  std::vector<std::string> words = {program("lockstep"), "run", "-np", "2", program("probe_rank")};
  for (const char* action : {"barrier", "0:say,here", "0:read", "all_reduce,f32,1000"})
    words.emplace_back(action);
  Process job = start(words, {{"LOCKSTEP_RECORD_DIR", records().string()}});
  job.await("here");
  EXPECT_EQ(await_first_line(job.pid(),
                             "slow rank: rank 0 \\(pid [0-9]+\\) is outside of any collective for "
                             "[0-9.]+ s, after barrier #0 in group \"world\"; rank 1 has waited "
                             "[0-9.]+ s for it in all_reduce #1 .*"),
            "as expected");
  job.type("\n");
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_FALSE(fs::exists(records()));
}

TEST_F(LiveJob, OfAnyLauncherIsFoundThroughARank) {
  auto ranks = start_probes(2, {"barrier", "0:say,here", "0:read", "barrier"});
  ranks[0].await("here");
  EXPECT_EQ(await_first_line(ranks[0].pid(), "slow rank: rank 0 .* rank 1 has waited .*"), "as expected");
  ranks[0].type("\n");
  for (const Ending& ending : finish(ranks)) EXPECT_EQ(ending.exit_code, 0) << ending.err;
}

TEST_F(Explain, OnlyAFailureOfAJobThatUsedLockstepLeavesARecord) {
  EXPECT_EQ(launch_probes(2, {"barrier"}, recorded()).exit_code, 0);
  std::vector<std::string> plain = {program("lockstep"), "run", "-np", "2", "sh", "-c", "exit 3"};
  const Ending ending = start(plain, recorded()).finish();
  EXPECT_EQ(ending.exit_code, 3);
  EXPECT_THAT(ending.err, Not(HasSubstr("explain")));
  EXPECT_FALSE(fs::exists(records()));
}

TEST_F(Explain, AJobThatItsUserStopsLeavesNone) {
  std::vector<std::string> words = {program("lockstep"), "run", "-np", "2", program("probe_rank")};
  for (const char* action : {"barrier", "say,here", "pause"}) words.emplace_back(action);
  Process job = start(words, recorded());
  job.await("[0] probe rank=0 here\n");
  job.send(SIGINT);
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 128 + SIGINT);
  EXPECT_FALSE(fs::exists(records()));
}

TEST_F(Explain, ARecordThatCannotBeWrittenIsOneLineAndChangesNothingElse) {
  std::ofstream(records()) << "a file where the folder should be";
  const Ending ending = launch_probes(2, {"barrier", "1:return,5", "barrier"}, recorded());
  EXPECT_EQ(ending.exit_code, 5);
  EXPECT_THAT(lines_with(ending.err, "lockstep run: there is no flight record of this job: "), SizeIs(1))
      << ending.err;
}

TEST_F(Explain, TheOptionWinsOverTheEnvironment) {
  const std::string here = (folder() / "here").string();
  for (const std::string& where : {here, std::string("none")}) {
    std::vector<std::string> words = {
        program("lockstep"),   "run",     "-np",       "2", "--record-dir", where,
        program("probe_rank"), "barrier", "1:return,5"};
    EXPECT_EQ(start(words, recorded()).finish().exit_code, 5);
    EXPECT_EQ(fs::exists(here), where == here);
    fs::remove_all(here);
  }
  EXPECT_FALSE(fs::exists(records()));
}

TEST_F(Explain, WhatCannotBeReadIsSaidClearly) {
  std::ofstream(folder() / "damaged.json") << "{\"format\": ";
  fs::create_directories(records() / "1234");
  std::ofstream(records() / "1234" / "flight_record.json") << "{}";
  const auto complaint = [&](const std::vector<std::string>& arguments) {
    const Ending ending = explain(arguments);
    EXPECT_EQ(ending.exit_code, 2);
    EXPECT_EQ(ending.out, "");
    EXPECT_THAT(lines_with(ending.err, ""), SizeIs(2));
    return first_line(ending.err);
  };
  EXPECT_EQ(complaint({}), "lockstep explain: pass a flight record, or the folder that holds it, or --pid");
  EXPECT_THAT(complaint({(folder() / "nothing").string()}), HasSubstr("No such file or directory"));
  EXPECT_THAT(complaint({(folder() / "damaged.json").string()}),
              HasSubstr("damaged.json: is no JSON, or not all of it is there"));
  EXPECT_THAT(complaint({(records() / "1234").string()}), HasSubstr("\"format\" is missing"));
  EXPECT_THAT(complaint({records().string()}),
              AllOf(HasSubstr("there is no flight_record.json in "),
                    HasSubstr("; the youngest below it is in " + (records() / "1234").string())));
  EXPECT_THAT(complaint({"--pid", "0"}), HasSubstr("--pid=\"0\" is not a whole number from 1 to"));
  EXPECT_THAT(complaint({"--pid", std::to_string(::getpid())}), HasSubstr("has joined no job of Lockstep"));
  EXPECT_THAT(complaint({"--never"}), HasSubstr("--never"));
}

}  // namespace
}  // namespace lockstep::testing
