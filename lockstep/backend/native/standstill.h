// A rank in send or recv and one in a collective may wait for each other for ever, and no comparison of calls
// shows it: a message belongs to no collective. So a rank that waits long in a message tells the other end, and
// that one knows whether it could still do its part:
//
//   rank 0  recv from 1 . . . "I wait in recv; I have had 3 messages of yours, and called 5 collectives" -> rank 1
//   rank 1  barrier #5 . . .  needs rank 0, which has not called it; has sent 3 messages; can send no more
//
// It is certain only where nothing else can happen on either side: one call under way in the group, a thread
// that stays in its wait, and no other thread. Otherwise it is a suspicion, to be said in warnings.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "lockstep/backend/native/call_numbers.h"
#include "lockstep/backend/native/group_parts.h"
#include "lockstep/backend/native/native_task.h"

namespace lockstep {

/// One rank's, of one group. Under the progress lock.
class Standstill {
 public:
  /// Borrows both.
  Standstill(GroupParts& parts, const CallNumbers& numbers) : parts_(parts), numbers_(numbers) {}

  /// The slow part of waits: of all works under way. Throws mismatch where it is certain.
  void look(const std::deque<NativeTask*>& waiting);
  /// What the last look found that is not certain; empty: nothing.
  const std::string& suspicion() const { return suspicion_; }

 private:
  void tell(const NativeTask& waiting, bool is_all);
  void judge(const NativeTask& waiting, bool is_all);
  bool awaits(const NativeTask& waiting, int peer) const;
  bool cannot_end(const MessageHeader& wait, int peer) const;

  GroupParts& parts_;
  const CallNumbers& numbers_;
  struct Told {
    int peer = -1;
    MessageHeader wait = {};
  };
  Told told_;  // last
  std::string suspicion_;
};

}  // namespace lockstep
