// The report that a job leaves: its files, what the terminal is told, and what can be made of them again.
#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/support/ssh_job_test.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

/// Barriers to which rank 1 comes 20 ms late.
std::vector<std::string> late_calls() {
  std::vector<std::string> actions;
  for (int i = 0; i < 25; ++i) actions.insert(actions.end(), {"1:sleep,20", "barrier"});
  return actions;
}

class ReportOf : public SshJobTest {
 protected:
  fs::path place() const { return folder() / "report"; }
  Ending launch(std::vector<std::string> options, std::vector<std::string> actions,
                const Variables& variables = {}, int network = -1) const {
    std::vector<std::string> words = {program("lockstep"), "run"};
    words.insert(words.end(), options.begin(), options.end());
    words.emplace_back(program("probe_rank"));
    words.insert(words.end(), actions.begin(), actions.end());
    return start(words, variables, network).finish();
  }
  /// late_calls(), again where rank 0 was put off for so long that it was as late as rank 1.
  Ending launch_late(const std::vector<std::string>& options, const Variables& variables = {},
                     int network = -1) const {
    Ending ending;
    for (int attempt = 0; attempt < 20; ++attempt) {
      fs::remove_all(place());
      ending = launch(options, late_calls(), variables, network);
      if (ending.exit_code != 0 || ending.err.find("rank 1 arrives last in ") != std::string::npos) break;
    }
    return ending;
  }
  Ending report(std::vector<std::string> words) const {
    words.insert(words.begin(), {program("lockstep"), "report"});
    return start(words).finish();
  }
  /// The names of its files, the job's as JOB.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(place())) {
      const std::string name = entry.path().filename();
      names.push_back(name.starts_with("lockstep_profile.") ? "lockstep_profile.JOB.json" : name);
    }
    std::ranges::sort(names);
    return names;
  }
};

const std::vector<std::string> whole = {"lockstep_profile.JOB.json", "report.html", "timeline.json"};
TEST_F(ReportOf, AJobNamesTheLateRankAndLeavesAPage) {
  const Ending ending = launch_late({"-np", "2", "--report", place()});
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.err,
              AllOf(ContainsRegex(
                        "lockstep run: [0-9.]+ % of the run is communication [^\n]*; rank 1 arrives last in "
                        "[0-9.]+ % of barrier calls, median [0-9.]+ ms late"),
                    HasSubstr("lockstep run: the report is " + (place() / "report.html").string())));
  EXPECT_EQ(files(), whole);
  EXPECT_THAT(text_in(place() / "report.html"), HasSubstr("rank 1 arrives last in"));
}

TEST_F(ReportOf, AFolderIsTheSameWhenItIsMadeAgain) {
  ASSERT_EQ(launch_late({"-np", "2"}, {{"LOCKSTEP_REPORT", place()}}).exit_code, 0);
  const std::string page = text_in(place() / "report.html");
  const Ending again = report({place()});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, AllOf(ContainsRegex("rank 1 arrives last in [0-9.]+ % of barrier calls"),
                               HasSubstr("Who is late"), Not(HasSubstr("What is missing"))));
  EXPECT_EQ(text_in(place() / "report.html"), page);
  const fs::path elsewhere = folder() / "elsewhere.html";
  EXPECT_EQ(report({place(), "-o", elsewhere}).exit_code, 0);
  EXPECT_EQ(text_in(elsewhere), page);
}

TEST_F(ReportOf, AJobWhoseRankIsKilledSaysWhoItWas) {
  const Ending ending = launch({"-np", "2", "--record-dir", "none", "--report", place()},
                               {"all_reduce,f32,100", "1:raise,9", "barrier"});
  EXPECT_EQ(ending.exit_code, 128 + SIGKILL);
  EXPECT_THAT(ending.err, ContainsRegex("lockstep run: The run failed: dead rank: rank 1 [^\n]*SIGKILL"));
  EXPECT_EQ(files(), whole);
  EXPECT_THAT(report({place()}).out, AllOf(HasSubstr("Where each rank was"), HasSubstr("rank 0 (pid ")));
}

TEST_F(ReportOf, AJobThatTheUserEndsBlamesNobody) {
  Process job = start({program("lockstep"), "run", "-np", "2", "--report", place(), program("probe_rank"),
                       "barrier", "say,done", "pause"});
  job.await("rank=0 done\n");
  job.await("rank=1 done\n");
  job.send(SIGTERM);
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 128 + SIGTERM);
  EXPECT_THAT(ending.err, Not(HasSubstr("The run failed")));
  EXPECT_THAT(report({place()}).out, AllOf(HasSubstr("ended: by SIGTERM"), Not(HasSubstr("failed"))));
}

TEST_F(ReportOf, AJobOfOneRankSaysWhyThereIsNone) {
  EXPECT_THAT(launch({"-np", "1", "--report", place()}, {"barrier"}).err,
              HasSubstr("there is no report: one rank alone communicates with nobody, and has no record"));
}

TEST_F(ReportOf, AnotherJobTakesThePlaceOfTheOneBefore) {
  ASSERT_EQ(launch({"-np", "2", "--report", place()}, {"barrier"}).exit_code, 0);
  const Ending ending = launch({"-np", "2", "--report", place()}, {"barrier"});
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(
      lines_with(ending.err, "lockstep run: the report in " + place().string() + " is of another run"),
      SizeIs(1));
  EXPECT_EQ(files(), whole);
}

TEST_F(ReportOf, AJobThatStartsAgainLeavesOneOfEachAttempt) {
  const std::string once = "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exec " + program("probe_rank") +
                           " barrier 1:raise,9 barrier; else exec " + program("probe_rank") + " barrier; fi";
  const Ending ending = start({program("lockstep"), "run", "-np", "2", "--max-restarts", "1", "--report",
                               place(), "/bin/sh", "-c", once})
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(text_in(place() / "report.html"), HasSubstr("The run failed"));
  EXPECT_THAT(text_in(folder() / "report.restart1" / "report.html"), Not(HasSubstr("The run failed")));
}

TEST_F(ReportOf, TwoJobsSaysWhatChanged) {
  ASSERT_EQ(launch({"-np", "2", "--report", place()}, late_calls()).exit_code, 0);
  const fs::path other = folder() / "other", page = folder() / "difference.html";
  auto twice = late_calls();
  twice.emplace_back("sleep,4000");
  ASSERT_EQ(launch({"-np", "2", "--report", other}, twice).exit_code, 0);
  const Ending ending = report({place(), other, "-o", page});
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, AllOf(ContainsRegex("The run takes [0-9]+ % more: [^\n]* then, [^\n]* now"),
                                ContainsRegex("\n +elapsed +[0-9.]+ m?s +[0-9.]+ m?s +\\+[0-9]+ %\n")));
  EXPECT_THAT(text_in(page), HasSubstr("Content-Security-Policy"));
}

TEST_F(ReportOf, AFileThatWasCutHasWhatIsThere) {
  ASSERT_EQ(launch({"-np", "2", "--report", place()}, late_calls()).exit_code, 0);
  const std::string text = text_in(place() / "timeline.json");
  std::ofstream(place() / "timeline.json") << text.substr(0, text.size() * 3 / 4);
  const Ending cut = report({place()});
  EXPECT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_THAT(cut.out, HasSubstr("the timeline was cut off"));
}

TEST_F(ReportOf, WrongUsageIsALineThatSaysWhatToDo) {
  const Ending none = report({folder() / "none"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(lines_with(none.err, "lockstep report: " + (folder() / "none").string() + " is no folder: "),
              SizeIs(1));
  EXPECT_EQ(report({}).exit_code, 2);
  EXPECT_EQ(report({folder(), "--limit"}).exit_code, 2);
  EXPECT_EQ(report({"--help"}).exit_code, 0);
  fs::create_directory(place());
  std::ofstream(place() / "timeline.json") << "no timeline";
  const Ending garbled = report({place()});
  EXPECT_EQ(garbled.exit_code, 1);
  EXPECT_THAT(garbled.err, HasSubstr("has no events as Lockstep writes them"));
  EXPECT_EQ(launch({"-np", "1", "--report", ""}, {}).exit_code, 2);
  const Ending unwritable = launch({"-np", "1", "--report", "/proc"}, {"barrier"});
  EXPECT_EQ(unwritable.exit_code, 2);
  EXPECT_THAT(unwritable.err, HasSubstr("cannot open the report /proc/report.html"));
}

TEST_F(ReportOf, TwoHostsHasTheRanksOfBoth) {
  REQUIRE_SSH_HOSTS(2);
  const Ending ending = launch_late({"-H", list(1), "--report", place()},
                                    {{"LOCKSTEP_SSH", servers().client()}}, hosts().network(0));
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.err, ContainsRegex("rank 1 arrives last in [0-9.]+ % of barrier calls"));
  EXPECT_THAT(report({place()}).out, ContainsRegex("clocks: of hosts agree within [0-9.]+ [mu]s"));
}

}  // namespace
}  // namespace lockstep::testing
