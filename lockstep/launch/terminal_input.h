// Rank 0 reads what is typed. A terminal lets only its foreground process group read, and the ranks are
// groups of their own, so the launcher reads for rank 0. (A file or a pipe as stdin is handed to rank 0 as it
// is.)
#pragma once

#include <string>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/poll_set.h"

namespace lockstep::launch {

class TerminalInput {
 public:
  /// The end that becomes rank 0's stdin: a pipe if `terminal` (borrowed) is one, else invalid and nothing
  /// will happen.
  UniqueFd open(int terminal);

  /// Says what to wait for; reads nothing while this process is in the background.
  void watch(PollSet& poll);

 private:
  void read_some();
  void write_some();

  int terminal_ = -1;
  bool ended_ = false;
  UniqueFd pipe_;
  std::string typed_;  // and not written yet
};

}  // namespace lockstep::launch
