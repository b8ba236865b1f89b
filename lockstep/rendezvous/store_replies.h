// What a client reads after a request: one reply or several, of kinds that depend on the request. A client
// that took any reply for any request's would return a store's mistake as a value, or wait for ever.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/socket.h"
#include "lockstep/rendezvous/store_wire.h"

namespace lockstep {

struct StoreReply {
  store_wire::Status status = store_wire::Status::done;
  std::string body = {};
};

/// The replies to one request.
class StoreReplies {
 public:
  /// `keys`: how many a wait has; 1 for all others.
  explicit StoreReplies(store_wire::Operation operation, std::size_t keys = 1)
      : operation_(operation), seen_(keys, false) {}

  /// Reads the next one. Errors: corrupt_data, where it is none to this request; peer_lost, timeout, system.
  /// REQUIRES: !is_over().
  StoreReply receive(Socket& socket, Deadline deadline);

  /// There are no more: the connection is free for the next request.
  bool is_over() const { return is_over_; }
  /// The store has said that it will answer when keys come.
  bool is_parked() const { return is_parked_; }
  /// Which keys of a wait the store has seen.
  const std::vector<bool>& seen() const { return seen_; }

 private:
  void check(const StoreReply& reply);
  void see(const std::string& index);

  const store_wire::Operation operation_;
  std::vector<bool> seen_;
  bool is_over_ = false;
  bool is_parked_ = false;
};

}  // namespace lockstep
