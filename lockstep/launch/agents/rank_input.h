// What rank 0 of another host reads: the launcher sends what it reads itself, no more at a time than the agent has room for.
#pragma once

#include <string>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/poll_set.h"

namespace lockstep::launch::agents {

class RankInput {
 public:
  /// The end that becomes rank 0's stdin. Throws Error{system}.
  UniqueFd open();
  /// Nothing comes after empty `bytes`.
  void add(const std::string& bytes);
  void watch(PollSet& poll);
  /// How many bytes have gone out since the last call, or will never.
  std::size_t take_room();

 private:
  void write_some();

  UniqueFd pipe_;
  bool ended_ = false;
  std::string queue_;
  std::size_t room_ = 0;
};

}  // namespace lockstep::launch::agents
