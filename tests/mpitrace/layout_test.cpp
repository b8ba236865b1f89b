// What stands in a profile, line by line.
#include "mpitrace_test.h"

namespace lockstep::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;

class MpitraceLayout : public Mpitrace {};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST_P(MpitraceLayout, IsMpitraces) {
  const Ending ending = run_profiled(mpi(), 2, {compile(mpi(), "ends.c")});
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  const std::string time = " +[0-9]+\\.[0-9]{3}";
  const std::string wide(71, '-'), rule(65, '-');
  const std::vector<std::string> expected = {
      "Data for MPI rank 1 of 2:",
      "Times and statistics from MPI_Init\\(\\) to MPI_Finalize\\(\\)\\.",
      wide,
      "MPI Routine                        #calls     avg\\. bytes      time\\(sec\\)",
      wide,
      "MPI_Allreduce                          10           64\\.0   " + time,
      "MPI_Comm_rank                           1            0\\.0   " + time,
      rule,
      "MPI task 1 of 2 had the .* communication time\\.",
      "total communication time =" + time + " seconds\\.",
      "total elapsed time       =" + time + " seconds\\.",
      "user cpu time            =" + time + " seconds\\.",
      "system time              =" + time + " seconds\\.",
      "max resident set size    =" + time + " MBytes\\.",
      "",
      "Rank [01] reported the largest memory utilization : [0-9]+\\.[0-9]{2} MBytes",
      "Rank [01] reported the largest elapsed time : [0-9]+\\.[0-9]{2} sec",
      rule,
      "Message size distributions:",
      "",
      "MPI_Allreduce             #calls    avg\\. bytes      time\\(sec\\)",
      "                              10          64\\.0   " + time,
      ""};
  const std::vector<std::string> lines = lines_of(profile_of(1));
  ASSERT_THAT(lines, SizeIs(expected.size())) << profile_of(1);
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_THAT(lines[i], MatchesRegex(expected[i]));
}

TEST_P(MpitraceLayout, HasFourFilesAtMostUnlessAllAreAskedFor) {
  const std::string program = compile(mpi(), "ends.c");
  const Ending few =
      run_profiled(mpi(), 6, {program}, {{"LOCKSTEP_PROFILE_ALL", "0"}, {"SLURM_JOB_ID", "job7"}});
  ASSERT_EQ(few.exit_code, 0) << few.err;
  EXPECT_LE(files().size(), 4U);
  EXPECT_TRUE(std::filesystem::exists(profiles() / "mpi_profile.job7.0")) << few.err;
  std::filesystem::remove_all(profiles());
  const Ending all =
      run_profiled(mpi(), 6, {program}, {{"LOCKSTEP_PROFILE_ALL", ""}, {"TRACE_ALL_TASKS", "yes"}});
  ASSERT_EQ(all.exit_code, 0) << all.err;
  EXPECT_THAT(files(), SizeIs(6));
}

TEST_P(MpitraceLayout, HasANameForEachStepOfABatchJob) {
  const std::string program = compile(mpi(), "ends.c");
  for (int step = 0; step < 3; ++step)
    ASSERT_EQ(run_profiled(mpi(), 1, {program}, {{"SLURM_JOB_ID", "job7"}}).exit_code, 0);
  EXPECT_THAT(files(), ElementsAre("mpi_profile.job7-2.0", "mpi_profile.job7-3.0", "mpi_profile.job7.0"));
}

TEST_P(MpitraceLayout, NamesTheLinesThatCall) {
  const Ending ending = run_by_tool(mpi(), 2, {"--sites"}, {compile(mpi(), "sites.c")});
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  const std::string text = profile_of(0);
  const std::string source =
      text_in(std::filesystem::path(std::getenv("LOCKSTEP_SOURCE_DIR")) / "tests/mpitrace/programs/sites.c");
  const auto line_of = [&](const std::string& mark) {
    const std::string before = source.substr(0, source.find(mark));
    return std::to_string(std::count(before.begin(), before.end(), '\n') + 1);
  };
  EXPECT_THAT(text, HasSubstr("Communication by call site"));
  EXPECT_THAT(text, ContainsRegex("solve at [^\n]*sites.c:" + line_of("solves") +
                                  "[^\n]*\n[^\n]*\n *MPI_Allreduce +7 +64.0"));
  EXPECT_THAT(text, ContainsRegex("meet at [^\n]*sites.c:" + line_of("meets") +
                                  "[^\n]*\n[^\n]*\n *MPI_Barrier +1 +0.0"));
  EXPECT_THAT(text, ContainsRegex("main at [^\n]*sites.c:" + line_of("from main") +
                                  "[^\n]*\n[^\n]*\n *MPI_Allreduce +1 +8.0"));
}

TEST_P(MpitraceLayout, HasTheBarriersApart) {
  const Ending ending = run_by_tool(mpi(), 2, {"--barrier"}, {compile(mpi(), "sites.c")});
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(profile_of(0), HasSubstr("waiting(sec)"));
  EXPECT_THAT(profile_of(0), ContainsRegex("MPI_Allreduce +8 +[0-9.]+ +[0-9.]+\n\n?$"));
  EXPECT_EQ(rows_of(profile_of(0))["MPI_Barrier"].calls, 1)
      << "the barriers of ours are no calls of the program's";
  std::filesystem::remove_all(profiles());
  const Ending named =
      run_profiled(mpi(), 2, {compile(mpi(), "sites.c")}, {{"COLLECTIVE_BARRIER", "MPI_Bcast,MPI_Reduce"}});
  ASSERT_EQ(named.exit_code, 0) << named.err;
  EXPECT_THAT(profile_of(0), Not(HasSubstr("waiting(sec)")));
}

TEST_P(MpitraceLayout, WrongValuesAreSaidAndCountAsUnset) {
  const Ending ending =
      run_profiled(mpi(), 2, {compile(mpi(), "ends.c")}, {{"LOCKSTEP_PROFILE_SITES", "maybe"}});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.err, "lockstep mpitrace: LOCKSTEP_PROFILE_SITES=\"maybe\" is not a switch"),
              SizeIs(1));
}

INSTANTIATE_TEST_SUITE_P(Of, MpitraceLayout, ::testing::ValuesIn(all_mpis()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace lockstep::testing
