// What a profile says of calls and bytes is what the program itself has counted.
#include "mpitrace_test.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MpitraceCounts : public Mpitrace {
 protected:
  void expect_truth(const Ending& ending, int ranks) const {
    ASSERT_EQ(ending.exit_code, 0) << ending.err << ending.out;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string text = profile_of(rank);
      const Rows rows = rows_of(text);
      EXPECT_EQ(told_by(rows), truths(ending, rank)) << text << ending.err;
      for (const auto& [routine, row] : rows) {
        EXPECT_EQ(row.calls_by_size, row.calls_by_size == 0 ? 0 : row.calls) << routine;
        EXPECT_TRUE(row.calls_by_size != 0 || row.average_bytes == 0) << routine;
      }
    }
    EXPECT_EQ(files().size(), static_cast<std::size_t>(ranks)) << "tables are left behind";
  }
};

TEST_P(MpitraceCounts, AreThoseOfTheProgram) {
  const std::string program = compile(mpi(), "calls.c");
  expect_truth(run_profiled(mpi(), 2, {program, folder() / "data"}), 2);
}

TEST_P(MpitraceCounts, AreThoseOfTheProgramOnFourRanks) {
  const std::string program = compile(mpi(), "calls.c");
  expect_truth(run_profiled(mpi(), 4, {program}), 4);
}

TEST_P(MpitraceCounts, AreTheSameWithSitesAndBarriers) {
  const std::string program = compile(mpi(), "calls.c");
  const Variables both = {{"PROFILE_BY_CALL_SITE", "yes"}, {"COLLECTIVE_BARRIER", "yes"}};
  const Ending ending = run_profiled(mpi(), 2, {program}, both);
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = profile_of(rank);
    const std::string table = text.substr(0, text.find("Barriers before collectives"));
    EXPECT_EQ(told_by(rows_of(table)), truths(ending, rank)) << text;
  }
}

TEST_P(MpitraceCounts, OfSeveralThreadsAddUp) {
  const Ending ending = run_profiled(mpi(), 2, {compile(mpi(), "threads.c")});
  if (ending.out.find("no threads") != std::string::npos)
    GTEST_SKIP() << "this MPI has no MPI_THREAD_MULTIPLE";
  expect_truth(ending, 2);
}

TEST_P(MpitraceCounts, AreThereForAnMpiThatAPluginBrings) {
  const std::string plugin = compile(mpi(), "plugin.c", {"-shared", "-fPIC"});
  const std::string loads = folder() / "loads";
  const std::string source =
      std::string(std::getenv("LOCKSTEP_SOURCE_DIR")) + "/tests/mpitrace/programs/loads.c";
  ASSERT_EQ(start({"gcc", "-o", loads, source, "-ldl"}).finish().exit_code, 0);
  const Ending ending = run_profiled(mpi(), 2, {loads, plugin});
  ASSERT_EQ(ending.exit_code, 0) << ending.err << ending.out;
  EXPECT_EQ(told_by(rows_of(profile_of(1))), (Truths{{"MPI_Comm_rank", {1, 0}}, {"MPI_Allreduce", {5, 40}}}));
}

INSTANTIATE_TEST_SUITE_P(Of, MpitraceCounts, ::testing::ValuesIn(all_mpis()),
                         [](const auto& info) { return name_of(info.param); });

class MpitraceFortran : public MpitraceCounts {
 protected:
  void SetUp() override {
    MpitraceCounts::SetUp();
    if (!IsSkipped() && std::system("gfortran --version >/dev/null 2>&1") != 0)
      GTEST_SKIP() << "gfortran is not installed";
  }
};

TEST_P(MpitraceFortran, CountsAreThoseOfTheProgram) {
  for (const char* source : {"fortran_mpif.F90", "fortran_mpi.F90"}) {
    SCOPED_TRACE(source);
    std::filesystem::remove_all(profiles());
    expect_truth(run_profiled(mpi(), 2, {compile_fortran(mpi(), source)}), 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, MpitraceFortran, ::testing::ValuesIn(all_mpis().begin() + 2, all_mpis().end()),
                         [](const auto& info) { return name_of(info.param); });

class MpitraceFortran2008 : public MpitraceFortran {};

TEST_P(MpitraceFortran2008, CountsAreThoseOfTheProgram) {
  expect_truth(run_profiled(mpi(), 2, {compile_fortran(mpi(), "fortran_f08.F90")}), 2);
}

// Intel's mpi_f08 is for its own compiler alone.
INSTANTIATE_TEST_SUITE_P(Of, MpitraceFortran2008,
                         ::testing::ValuesIn(all_mpis().begin() + 3, all_mpis().end()),
                         [](const auto& info) { return name_of(info.param); });

class MpitraceDeclarations : public Mpitrace {};

TEST_P(MpitraceDeclarations, AreThoseOfItsHeader) {
  const std::string family = mpi().family == "openmpi" ? "OPENMPI" : "MPICH";
  const std::string source = std::getenv("LOCKSTEP_SOURCE_DIR");
  const std::string program =
      compile(mpi(), "agreement.cpp",
              {"-std=c++20", "-I" + source, "-I" LOCKSTEP_GENERATED, "-DLOCKSTEP_MPITRACE_" + family});
  EXPECT_EQ(start({program}, mpi().variables()).finish().exit_code, 0);
}

// MPI 4's declarations are in these alone.
INSTANTIATE_TEST_SUITE_P(Of, MpitraceDeclarations,
                         ::testing::ValuesIn(all_mpis().begin(), all_mpis().begin() + 3),
                         [](const auto& info) { return name_of(info.param); });

/// The same MPIs by another library and header.
class MpitraceStandardAbi : public Mpitrace {
 protected:
  MpiPeer standard() const {
    std::filesystem::create_directory(folder() / "abi");
    std::filesystem::create_symlink(mpi().home() / "include/mpi_abi.h", folder() / "abi/mpi.h");
    MpiPeer standard = mpi();
    standard.include = folder() / "abi";
    standard.link_words = {"-lmpi_abi"};
    standard.family = "abi";
    return standard;
  }
};

TEST_P(MpitraceStandardAbi, DeclarationsAreThoseOfItsHeader) {
  const std::string source = std::getenv("LOCKSTEP_SOURCE_DIR");
  const std::string program =
      compile(standard(), "agreement.cpp",
              {"-std=c++20", "-I" + source, "-I" LOCKSTEP_GENERATED, "-DLOCKSTEP_MPITRACE_ABI"});
  EXPECT_EQ(start({program}, mpi().variables()).finish().exit_code, 0);
}

TEST_P(MpitraceStandardAbi, CountsAreThoseOfTheProgram) {
  const MpiPeer abi = standard();
  const Ending ending = run_profiled(abi, 2, {compile(abi, "calls.c"), folder() / "data"});
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(told_by(rows_of(profile_of(rank))), truths(ending, rank)) << ending.err;
}

INSTANTIATE_TEST_SUITE_P(Of, MpitraceStandardAbi,
                         ::testing::ValuesIn(all_mpis().begin() + 1, all_mpis().begin() + 3),
                         [](const auto& info) { return name_of(info.param); });

class MpitraceBenchmark : public MpitraceJob {};

TEST_F(MpitraceBenchmark, OfIntelRunsUnderIt) {
  const MpiPeer& impi = all_mpis()[2];
  const auto benchmark = peer_program("impi", "IMB-MPI1");
  if (!benchmark) GTEST_SKIP() << "impi is not installed: script/bootstrap --peers impi";
  const Ending ending = run_profiled(impi, 2,
                                     {*benchmark, "-iter", "50", "-iter_policy", "off", "-msglog", "3:10",
                                      "Allreduce", "PingPong", "Bcast"});
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("Benchmarking Allreduce"));
  const Rows rows = rows_of(profile_of(0));
  // 9 sizes (0 and 8 to 1024) of 50 calls and some to warm up.
  EXPECT_GE(rows.at("MPI_Allreduce").calls, 9 * 50);
  EXPECT_LE(rows.at("MPI_Allreduce").calls, 9 * 50 * 3);
  EXPECT_GE(rows.at("MPI_Send").calls, 9 * 50);
  EXPECT_EQ(rows.at("MPI_Send").calls, rows.at("MPI_Recv").calls);
  EXPECT_GE(rows.at("MPI_Bcast").calls, 9 * 50);
}

}  // namespace
}  // namespace lockstep::testing
