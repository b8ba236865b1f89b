// Jobs of real MPIs that are profiled. A test's programs are compiled with the MPI that it is about.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "mpi_peer.h"
#include "profile_file.h"
#include "tests/support/job_test.h"

namespace lockstep::testing {

class MpitraceJob : public JobTest {
 protected:
  /// Of the folder tests/mpitrace/programs, into the test's folder. `words` are more of the compiler's.
  std::string compile(const MpiPeer& mpi, const std::string& source,
                      std::vector<std::string> words = {}) const;
  std::string compile_fortran(const MpiPeer& mpi, const std::string& source) const;

  std::string library(const std::string& family) const;
  std::filesystem::path profiles() const { return folder() / "profiles"; }

  /// Under LD_PRELOAD, a profile for each rank in profiles().
  Ending run_profiled(const MpiPeer& mpi, int ranks, std::vector<std::string> words,
                      const Variables& more = {}) const;
  /// Under `lockstep profile --dir profiles() OPTIONS --`.
  Ending run_by_tool(const MpiPeer& mpi, int ranks, std::vector<std::string> options,
                     std::vector<std::string> words) const;

  /// What the program has counted: C programs leave it in the folder, Fortran's print it.
  Truths truths(const Ending& ending, int rank) const;
  /// Of the only job in profiles(); "" where there is none.
  std::string profile_of(int rank) const;
  /// Names of files there, tables too.
  std::vector<std::string> files() const;
};

/// Each MPI, skipped where it is not installed.
class Mpitrace : public MpitraceJob, public ::testing::WithParamInterface<MpiPeer> {
 protected:
  void SetUp() override;
  void TearDown() override;
  const MpiPeer& mpi() const { return GetParam(); }
};

}  // namespace lockstep::testing
