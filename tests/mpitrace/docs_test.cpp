// The commands of docs/mpitrace.md, line by line as they stand there, with real MPIs. ./app is a program of ours.
#include <filesystem>
#include <sstream>

#include "mpitrace_test.h"
#include "tests/support/shell_blocks.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;
using ::testing::Not;

const MpiPeer& mpi_for(const std::string& line) {
  // Intel's benchmarks are Intel's MPI's; all else is the distribution's Open MPI.
  const std::string peer = line.find("IMB-MPI1") == std::string::npos ? "debian-openmpi" : "impi";
  return *std::ranges::find(all_mpis(), peer, &MpiPeer::peer);
}

class MpitraceDocs : public MpitraceJob {
 protected:
  /// In the test's folder, where `lockstep` and this MPI's programs are found.
  Ending run_line(std::string line, const MpiPeer& mpi) const {
    const std::string libraries = fs::path(library("mpich")).parent_path();
    line = replaced(line, "/path/to/lib", libraries);
    Variables variables = mpi.variables();
    variables.emplace_back("LOCKSTEP_TEST_TRUTHS", folder());
    const fs::path launcher = mpi.home() / mpi.launcher;
    std::string mpirun = launcher;
    for (const std::string& word : mpi.launcher_words) mpirun += " " + word;
    const std::string prepared = "cd " + folder().string() +
                                 "; export PATH=" + fs::path(program("lockstep")).parent_path().string() +
                                 ":" + launcher.parent_path().string() + ":$PATH; ";
    return start({"/bin/bash", "-ec", prepared + replaced(line, "mpirun", mpirun)}, variables).finish();
  }
};

TEST_F(MpitraceDocs, AllCommandsWork) {
  int lines = 0;
  for (const std::string& block : shell_blocks_in("docs/mpitrace.md")) {
    std::istringstream text(block);
    for (std::string line; std::getline(text, line); ++lines) {
      const MpiPeer& mpi = mpi_for(line);
      if (!mpi.is_installed()) GTEST_SKIP() << "no peer " << mpi.peer;
      if (!fs::exists(folder() / "app")) fs::copy(compile(mpi_for("./app"), "ends.c"), folder() / "app");
      const Ending ending = run_line(line, mpi);
      EXPECT_EQ(ending.exit_code, 0) << line << "\n" << ending.out << ending.err;
      EXPECT_THAT(lines_with(ending.err, "lockstep "), Not(IsEmpty())) << line << "\n" << ending.err;
    }
  }
  EXPECT_GT(lines, 5);
}

}  // namespace
}  // namespace lockstep::testing
