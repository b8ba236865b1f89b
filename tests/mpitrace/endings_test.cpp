// How a profiled program may end, and what is then there.
#include <fstream>

#include "mpitrace_test.h"

namespace lockstep::testing {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

const std::string early = "the rank ended before MPI_Finalize().";

class MpitraceEnding : public Mpitrace {};

TEST_P(MpitraceEnding, OfOneRankByKillLosesNothing) {
  const Ending ending = run_by_tool(mpi(), 2, {"--all"}, {compile(mpi(), "ends.c"), "kill"});
  EXPECT_NE(ending.exit_code, 0);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = profile_of(rank);
    EXPECT_THAT(text, HasSubstr(early)) << ending.err;
    Truths told = told_by(rows_of(text));
    told.erase("MPI_Barrier");  // in which rank 0 may have been
    EXPECT_EQ(told, (Truths{{"MPI_Comm_rank", {1, 0}}, {"MPI_Allreduce", {10, 640}}})) << text;
  }
  EXPECT_THAT(ending.err, HasSubstr("2 ranks of 2 ended before MPI_Finalize"));
  EXPECT_THAT(files(), Each(StartsWith("mpi_profile.")));
}

TEST_P(MpitraceEnding, WithoutFinalizeLosesNothing) {
  const Ending ending = run_by_tool(mpi(), 2, {"--all"}, {compile(mpi(), "ends.c"), "exit"});
  EXPECT_EQ(told_by(rows_of(profile_of(1))),
            (Truths{{"MPI_Comm_rank", {1, 0}}, {"MPI_Allreduce", {10, 640}}}))
      << ending.err;
  EXPECT_THAT(profile_of(0), HasSubstr(early));
  EXPECT_THAT(files(), Each(StartsWith("mpi_profile.")));
}

TEST_P(MpitraceEnding, ByAbortLosesNothingAndLaterItIsWritten) {
  const Ending ending = run_profiled(mpi(), 2, {compile(mpi(), "ends.c"), "abort"});
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(files(), SizeIs(2)) << "the tables of both";
  EXPECT_THAT(files(), Each(StartsWith(".lockstep_mpitrace.")));
  const Ending later = start({program("lockstep"), "profile", "--dir", profiles(), "--all"}).finish();
  EXPECT_EQ(later.exit_code, 0) << later.err;
  EXPECT_THAT(later.err, HasSubstr("2 ranks of 2 ended before MPI_Finalize"));
  EXPECT_THAT(profile_of(0), HasSubstr(early));
  EXPECT_THAT(files(), SizeIs(2));
  EXPECT_THAT(files(), Each(StartsWith("mpi_profile.")));
}

TEST_P(MpitraceEnding, OfAForkedChildChangesNothing) {
  for (const char* what : {"fork", "exec"}) {
    std::filesystem::remove_all(profiles());
    const Ending ending = run_profiled(mpi(), 2, {compile(mpi(), "ends.c"), what});
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_EQ(told_by(rows_of(profile_of(rank))), truths(ending, rank)) << what;
    EXPECT_THAT(files(), SizeIs(2)) << what;
  }
}

TEST_P(MpitraceEnding, TheToolHasTheCommandsExitCode) {
  const Ending ending = run_by_tool(mpi(), 1, {}, {"/bin/sh", "-c", "exit 3", compile(mpi(), "ends.c")});
  EXPECT_EQ(ending.exit_code, 3) << ending.err;
  EXPECT_THAT(files(), IsEmpty());
}

TEST_P(MpitraceEnding, TheToolFindsTheFamilyOfAScriptByItsLauncher) {
  const std::string program = compile(mpi(), "ends.c");
  const auto script = folder() / "script";
  std::ofstream(script) << "#!/bin/sh\necho for Python: $MPI4PY_MPIABI\nexec " << program << "\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const Ending ending = run_by_tool(mpi(), 2, {}, {script});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("for Python: " + mpi().family));
  EXPECT_EQ(rows_of(profile_of(0))["MPI_Allreduce"].calls, 10) << ending.err;
  EXPECT_THAT(lines_with(ending.err, "lockstep mpitrace: "), SizeIs(3)) << ending.err;
  EXPECT_THAT(ending.err, HasSubstr("lockstep mpitrace: most communication: rank "));
}

TEST_P(MpitraceEnding, UnderTheLibraryOfAnotherFamilyIsUnprofiledAndSaidOnce) {
  const std::string other = mpi().family == "openmpi" ? "mpich" : "openmpi";
  const Ending ending = run_profiled(mpi(), 2, {compile(mpi(), "ends.c")}, {{"LD_PRELOAD", library(other)}});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(truths(ending, 1)["MPI_Allreduce"].calls, 10);
  const auto lines = lines_with(ending.err, "lockstep mpitrace: ");
  ASSERT_THAT(lines, SizeIs(1)) << ending.err;
  EXPECT_THAT(lines.front(), HasSubstr("preload " + library(mpi().family) + " instead"));
  EXPECT_THAT(files(), IsEmpty());
}

TEST_P(MpitraceEnding, AnMpiOfAnotherFamilyThatComesLateEndsTheProgramWithALine) {
  const std::string other = mpi().family == "openmpi" ? "mpich" : "openmpi";
  const std::string plugin = compile(mpi(), "plugin.c", {"-shared", "-fPIC"});
  const std::string loads = folder() / "loads";
  const std::string source =
      std::string(std::getenv("LOCKSTEP_SOURCE_DIR")) + "/tests/mpitrace/programs/loads.c";
  ASSERT_EQ(start({"gcc", "-o", loads, source, "-ldl"}).finish().exit_code, 0);
  const Ending ending = run_profiled(mpi(), 1, {loads, plugin}, {{"LD_PRELOAD", library(other)}});
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(ending.err, HasSubstr("preload " + library(mpi().family) + " instead. The program ends here"));
}

INSTANTIATE_TEST_SUITE_P(Of, MpitraceEnding, ::testing::ValuesIn(all_mpis()),
                         [](const auto& info) { return name_of(info.param); });

class MpitraceWithoutMpi : public MpitraceJob {};

TEST_F(MpitraceWithoutMpi, AProgramRunsUntouched) {
  for (const char* family : {"openmpi", "mpich", "abi"}) {
    const Ending ending =
        start({"/bin/echo", "hello"}, {{"LD_PRELOAD", library(family)}, {"LOCKSTEP_PROFILE", profiles()}})
            .finish();
    EXPECT_EQ(ending.exit_code, 0);
    EXPECT_EQ(ending.out, "hello\n");
    EXPECT_EQ(ending.err, "");
    EXPECT_FALSE(std::filesystem::exists(profiles()));
  }
}

TEST_F(MpitraceWithoutMpi, TheToolSaysWhatItDoesNotFind) {
  const Ending ending =
      start({program("lockstep"), "profile", "--dir", profiles(), "--", "/bin/echo", "hello"}).finish();
  EXPECT_EQ(ending.exit_code, 2);
  EXPECT_THAT(ending.err, HasSubstr("--family openmpi, mpich or abi"));
  EXPECT_EQ(start({program("lockstep"), "profile", "--family", "lam", "--", "true"}).finish().exit_code, 2);
  EXPECT_EQ(start({program("lockstep"), "profile", "--"}).finish().exit_code, 2);
  EXPECT_EQ(start({program("lockstep"), "profile", "--help"}).finish().exit_code, 0);
}

TEST_F(MpitraceWithoutMpi, OnlyNamesOfMpiLeaveTheLibraries) {
  for (const char* family : {"openmpi", "mpich", "abi"}) {
    const Ending symbols = start({"nm", "-D", "--defined-only", library(family)}).finish();
    ASSERT_EQ(symbols.exit_code, 0) << symbols.err;
    std::istringstream lines(symbols.out);
    int count = 0;
    for (std::string address, kind, name; lines >> address >> kind >> name; ++count)
      EXPECT_TRUE(name.starts_with("MPI_") || name.starts_with("mpi_")) << name;
    EXPECT_GT(count, 2000);
    const Ending needed = start({"readelf", "-d", library(family)}).finish();
    EXPECT_THAT(needed.out, Not(HasSubstr("libstdc++")));
    EXPECT_THAT(needed.out, Not(HasSubstr("libgcc")));
    EXPECT_THAT(needed.out, Not(HasSubstr("libmpi")));
  }
}

}  // namespace
}  // namespace lockstep::testing
