// Ranks of these tests are real processes, started and watched one by one. Whatever becomes of the test, none
// of them outlives it, and no wait for one of them lasts for ever.
#pragma once

#include <sys/types.h>

#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::testing {

using Variables = std::vector<std::pair<std::string, std::string>>;

struct Command {
  std::vector<std::string> words;  ///< the program's path, or its name to look for in PATH, and arguments
  Variables variables = {};        ///< beside this process's own, without what any launcher had set
  int network = -1;                ///< the network namespace to live in; borrowed until the process has begun
};

struct Ending {
  int exit_code = -1;  ///< 128 + signal where a signal ended it, as shells have it
  std::string out = {}, err = {};
};
void PrintTo(const Ending& ending, std::ostream* stream);

/// Every wait fails the test after 100 s: sanitizers and other tests slow down what is done in a few. The destructor kills (SIGKILL) a
/// process that still runs.
class Process {
 public:
  explicit Process(const Command& command);
  Process(Process&&) noexcept = default;
  Process& operator=(Process&&) = delete;
  ~Process();

  pid_t pid() const { return pid_; }
  void send(int signal) const;
  /// Into its stdin.
  void type(const std::string& text) const;
  /// Reads until its stdout holds `text`.
  void await(const std::string& text);
  /// The same of its stderr.
  void await_err(const std::string& text);
  /// What has been read of its stdout so far.
  const std::string& out() const { return seen_.out; }
  /// Reads its output to the end and waits for it.
  Ending finish();

 private:
  void await(const std::string& text, const std::string& stream);
  bool read_some(Deadline deadline);  // false: both streams have ended, or the deadline has passed

  struct Owned {
    pid_t pid = -1;
    ~Owned();
  };
  pid_t pid_ = -1;
  std::unique_ptr<Owned> owned_;  // null once waited for
  UniqueFd in_, out_, err_;
  Ending seen_;
};

/// Runs it to its end.
Ending run(const Command& command);

/// "NAME=value" of the processes that have it in their environment now.
std::vector<pid_t> processes_with(const std::string& variable);

/// Of the folder where this test program is.
std::string program(const std::string& name);

}  // namespace lockstep::testing
