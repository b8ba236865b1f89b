// The report of an MPI program: who came late to its collectives, and what that cost.
#include <fstream>

#include "mpitrace_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class MpitraceReport : public Mpitrace {
 protected:
  std::filesystem::path report() const { return folder() / "report"; }
  Ending report_again() const { return start({program("lockstep"), "report", report()}).finish(); }
};

TEST_P(MpitraceReport, NamesTheRankThatComesLate) {
  const Ending ending = run_by_tool(mpi(), 2, {"--report", report()}, {compile(mpi(), "late.c")});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(
      ending.err,
      AllOf(ContainsRegex("lockstep profile: [0-9]+ % of the run is communication \\([0-9]+ % of it waiting "
                          "for others\\); rank 1 "
                          "arrives last in [0-9]+ % of MPI_Allreduce calls, median [3-9]\\.[0-9] ms late"),
            HasSubstr("`lockstep profile --sites` says from which lines of it MPI is called"),
            HasSubstr("the report is " + (report() / "report.html").string())));
  EXPECT_THAT(text_in(report() / "report.html"), HasSubstr("MPI_Allreduce"));
  const Ending again = report_again();
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out,
              AllOf(ContainsRegex("Rank 1 arrives last|rank 1 arrives last"), HasSubstr("Calls of MPI"),
                    ContainsRegex("MPI_Allreduce +120 +937.5 KiB"), Not(HasSubstr("What is missing"))));
}

INSTANTIATE_TEST_SUITE_P(Of, MpitraceReport, ::testing::ValuesIn(all_mpis()),
                         [](const auto& info) { return name_of(info.param); });

class MpitraceReportFolder : public MpitraceJob {
 protected:
  Ending profile(std::vector<std::string> options) const {
    std::vector<std::string> words = {program("lockstep"), "profile",  "--dir",
                                      profiles(),          "--family", "mpich"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", "/bin/echo", "it ran"});
    return start(words).finish();
  }
};

TEST_F(MpitraceReportFolder, ThatCannotBeIsAnErrorOfTheTool) {
  std::ofstream(folder() / "file") << "mine";
  const Ending no_folder = profile({"--report", folder() / "file"});
  EXPECT_EQ(no_folder.exit_code, 2);
  EXPECT_EQ(no_folder.out, "");
  EXPECT_THAT(no_folder.err, HasSubstr((folder() / "file").string()));
  EXPECT_EQ(text_in(folder() / "file"), "mine");
  const Ending twice = profile({"--report", folder() / "report", "--timeline", folder() / "x.json"});
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_EQ(twice.out, "");
  EXPECT_THAT(twice.err, HasSubstr("--report DIR has the timeline in DIR: leave out --timeline"));
}

TEST_F(MpitraceReportFolder, OfAProgramWithoutMpiHasNoReport) {
  const Ending ending = profile({"--report", folder() / "report"});
  EXPECT_EQ(ending.exit_code, 0);
  EXPECT_THAT(ending.err, HasSubstr("there is no timeline: no rank has left any calls"));
  EXPECT_FALSE(std::filesystem::exists(folder() / "report" / "report.html"));
}

}  // namespace
}  // namespace lockstep::testing
