// A job as its user sees it: what the launcher writes, how it ends, and whether anything is left of it. The
// launcher runs in a child process, through the library; launcher_command_test.cpp has the tests of the
// command itself.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/run.h"

namespace lockstep::launch {

struct Surroundings {
  std::vector<std::pair<std::string, std::string>> variables = {};  ///< of the launcher
  std::string input = {};                                           ///< its stdin
  bool one_stream = false;                                          ///< stdout and stderr are the same pipe
  std::function<void()> in_launcher = {};                           ///< called in it before it does anything
};

struct Result {
  int exit_code = -1;  ///< -signal if the launcher itself was killed
  std::string out = {}, err = {};
};

/// Options for `ranks` shells that run `script`. In it, $FOLDER is a fresh folder, and `exec 9>$FOLDER/life`
/// makes await_nobody_left() see the shell and its descendants.
RunOptions shells(int ranks, const std::string& script);
/// Options for `ranks` copies of this test program in a role of launcher_roles.cpp.
RunOptions roles(int ranks);

/// Every wait fails the test when 30 s have passed. Its destructor kills the launcher if it still runs, and
/// fails the test if any process of the job is left.
class JobUnderTest {
 public:
  explicit JobUnderTest(const RunOptions& options, const Surroundings& surroundings = {});
  JobUnderTest(const JobUnderTest&) = delete;
  JobUnderTest& operator=(const JobUnderTest&) = delete;
  ~JobUnderTest();

  pid_t pid() const { return pid_; }
  std::filesystem::path folder() const { return folder_; }
  void send(int signal) const;
  /// Reads until both streams together hold `text`, `times` times.
  void await(const std::string& text, int times = 1);
  /// What has been read so far.
  std::string seen() const { return result_.out + result_.err; }
  /// Reads for some milliseconds; true if the launcher has closed its streams.
  bool read_for(int milliseconds);
  /// Reads to the end and waits for the launcher.
  Result finish();
  /// No process holds $FOLDER/life any more. REQUIRES: some process did.
  void await_nobody_left();

 private:
  void become_launcher(const RunOptions& options, const Surroundings& surroundings, int input, int out,
                       int err);
  bool read_some(Deadline until);

  std::string mark_;
  std::filesystem::path folder_;
  UniqueFd life_;
  UniqueFd out_, err_;
  Result result_;
  pid_t pid_ = -1;
};

/// Runs a job to its end.
Result run_job(const RunOptions& options, const Surroundings& surroundings = {});

/// What follows `before` in `text`, up to the end of the line.
std::string rest_of_line(const std::string& text, const std::string& before);
int count(const std::string& text, const std::string& part);

}  // namespace lockstep::launch
