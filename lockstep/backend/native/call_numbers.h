// Calls are numbered as they are made, by which ranks know them, and complete in any order.
#pragma once

#include <cstdint>
#include <deque>
#include <map>

#include "lockstep/backend/backend.h"

namespace lockstep {

/// One rank's of one group. Under the progress lock.
class CallNumbers {
 public:
  /// The number that this call gets; whoever makes the call adds one. Messages to each peer have numbers of
  /// their own, and so have those from it.
  std::uint64_t& next_for(const Request& request) {
    switch (request.signature.operation) {
      case Operation::send: return next_sent_[request.peer];
      case Operation::receive: return next_received_[request.peer];
      default: return next_collective_;
    }
  }
  /// How many messages this rank has begun to send to `peer`.
  std::uint64_t sent_to(int peer) const {
    const auto found = next_sent_.find(peer);
    return found == next_sent_.end() ? 0 : found->second;
  }
  std::uint64_t next_collective() const { return next_collective_; }

  /// That collective is complete here. Returns the first that is not.
  std::uint64_t complete(std::uint64_t number) {
    if (number == completed_through_ && completed_.empty()) return ++completed_through_;
    const std::size_t index = number - completed_through_;
    if (completed_.size() <= index) completed_.resize(index + 1);
    completed_[index] = true;
    while (!completed_.empty() && completed_.front()) {
      completed_.pop_front();
      ++completed_through_;
    }
    return completed_through_;
  }

 private:
  std::uint64_t next_collective_ = 0;
  std::map<int, std::uint64_t> next_sent_, next_received_;  // by peer
  std::deque<bool> completed_;                              // from completed_through_ on
  std::uint64_t completed_through_ = 0;
};

}  // namespace lockstep
