// Ranks of one host see in shared memory what the others called. Between hosts a call shows only in the data
// that it sends, and two ranks that called different things may each wait for data that the other will never
// send. So a rank that waits long tells the one it waits for what it has called, and each compares that with
// its own call of the same number.
#pragma once

#include <array>
#include <cstdint>

#include "lockstep/backend/native/links.h"
#include "lockstep/transport/members.h"

namespace lockstep {

class NativeTask;

/// Telling and listening take a connection. In larger groups only ranks that have one do so: most
/// often enough, because ranks that wait for each other have had to do with each other before.
inline constexpr int few_ranks = 16;

/// Collectives of one group as one of its ranks calls them. Under the progress lock.
class CallComparison {
 public:
  /// Borrows both.
  CallComparison(const Members& members, Links& links) : members_(members), links_(links) {}

  /// This rank calls `signature` as number `number`, the next one.
  void note(std::uint64_t number, const Signature& signature);
  /// The slow part of a wait: tells and compares. Throws mismatch.
  void look(NativeTask& waiting, std::uint64_t waited_ns);
  /// A mismatch: explains the message of `peer` that was not the one to come next. REQUIRES: it stopped its link.
  Error explain(int peer) const;

 private:
  static constexpr std::uint64_t remembered = 256;
  const Signature* find(std::uint64_t number) const;
  void compare(int peer, const MessageHeader& call) const;

  const Members& members_;
  Links& links_;
  std::array<Signature, remembered> called_{};  // by number
  std::uint64_t next_ = 0;
};

}  // namespace lockstep
