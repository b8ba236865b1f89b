#include <algorithm>
#include <cstdlib>

#include "mpitrace_test.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

fs::path programs() { return fs::path(std::getenv("LOCKSTEP_SOURCE_DIR")) / "tests/mpitrace/programs"; }

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

std::vector<std::string> launch_words(const MpiPeer& mpi, int ranks,
                                      const std::vector<std::string>& program) {
  std::vector<std::string> words = {mpi.home() / mpi.launcher};
  append(words, mpi.launcher_words);
  append(words, {"-n", std::to_string(ranks)});
  append(words, program);
  return words;
}

}  // namespace

std::string MpitraceJob::compile(const MpiPeer& mpi, const std::string& source,
                                 std::vector<std::string> words) const {
  const std::string target = folder() / fs::path(source).stem();
  std::vector<std::string> all = {source.ends_with(".cpp") ? "g++" : "gcc",
                                  "-g",
                                  "-O1",
                                  "-pthread",
                                  "-I" + mpi.in_home(mpi.include),
                                  programs() / source,
                                  "-o",
                                  target};
  append(all, words);
  append(all, {"-L" + mpi.in_home(mpi.libraries), "-Wl,-rpath," + mpi.in_home(mpi.libraries),
               "-Wl,--allow-shlib-undefined"});
  append(all, mpi.link_words);
  const Ending ending = start(all).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  return target;
}

std::string MpitraceJob::compile_fortran(const MpiPeer& mpi, const std::string& source) const {
  const std::string target = folder() / fs::path(source).stem();
  std::vector<std::string> all = {"gfortran",
                                  "-g",
                                  "-fallow-argument-mismatch",
                                  "-I" + mpi.in_home(mpi.include),
                                  programs() / source,
                                  "-o",
                                  target,
                                  "-L" + mpi.in_home(mpi.libraries),
                                  "-Wl,-rpath," + mpi.in_home(mpi.libraries),
                                  "-Wl,--allow-shlib-undefined"};
  for (const std::string& word : mpi.fortran_words) all.push_back(mpi.in_home(word));
  append(all, mpi.link_words);
  const Ending ending = start(all).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  return target;
}

std::string MpitraceJob::library(const std::string& family) const {
  return fs::path(std::getenv("LOCKSTEP_BINARY_DIR")) / "lib" / ("liblockstep_mpitrace_" + family + ".so");
}

Ending MpitraceJob::run_profiled(const MpiPeer& mpi, int ranks, std::vector<std::string> words,
                                 const Variables& more) const {
  Variables variables = mpi.variables();
  for (const auto& variable : Variables{{"LD_PRELOAD", library(mpi.family)},
                                        {"LOCKSTEP_PROFILE", profiles()},
                                        {"LOCKSTEP_PROFILE_ALL", "1"},
                                        {"LOCKSTEP_TEST_TRUTHS", folder()}})
    variables.push_back(variable);
  variables.insert(variables.end(), more.begin(), more.end());
  return start(launch_words(mpi, ranks, words), variables).finish();
}

Ending MpitraceJob::run_by_tool(const MpiPeer& mpi, int ranks, std::vector<std::string> options,
                                std::vector<std::string> words) const {
  std::vector<std::string> all = {program("lockstep"), "profile", "--dir", profiles()};
  append(all, options);
  all.emplace_back("--");
  append(all, launch_words(mpi, ranks, words));
  Variables variables = mpi.variables();
  variables.emplace_back("LOCKSTEP_TEST_TRUTHS", folder());
  return start(all, variables).finish();
}

Truths MpitraceJob::truths(const Ending& ending, int rank) const {
  return truths_of(ending.out + text_in(folder() / ("truth." + std::to_string(rank))), rank);
}

std::vector<std::string> MpitraceJob::files() const {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(profiles(), none)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

std::string MpitraceJob::profile_of(int rank) const {
  for (const std::string& name : files()) {
    if (name.starts_with("mpi_profile.") && name.ends_with("." + std::to_string(rank)))
      return text_in(profiles() / name);
  }
  return "";
}

void Mpitrace::TearDown() {
  std::error_code ignored;
  if (mpi().peer == "mpich") {  // leaves its own there when a rank is killed
    for (const auto& entry : fs::directory_iterator("/dev/shm", ignored)) {
      if (entry.path().filename().string().starts_with("mpich_shm_")) fs::remove(entry.path(), ignored);
    }
  }
  JobTest::TearDown();
}

void Mpitrace::SetUp() {
  JobTest::SetUp();
  if (!mpi().is_installed())
    GTEST_SKIP() << mpi().peer << " is not installed: script/bootstrap --peers " << mpi().peer;
}

}  // namespace lockstep::testing
