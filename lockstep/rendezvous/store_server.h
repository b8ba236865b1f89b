// The process that holds the store serves all others from one thread. Anyone may connect to it and send
// anything: a client that is slow, broken or hostile loses its own connection and nothing else.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/base/newcomers.h"
#include "lockstep/base/proof.h"
#include "lockstep/base/socket.h"
#include "lockstep/rendezvous/store.h"

namespace lockstep {

struct StoreServerOptions {
  Trust trust = {};
  std::string job = {};  ///< its name, which clients have to know
  StoreLimits limits = {};
  int max_clients = 65536;       ///< connections in all; more wait in the kernel's backlog
  NewcomerLimits unproven = {};  ///< of those, without a proof yet
};

/// Serves from its construction to its destruction, which closes all connections: clients find out at once.
/// Memory: the store's limits, and for each proven client the one request or reply that is under way.
/// Thread safety: all calls, from any thread. Its thread takes no signals.
class StoreServer {
 public:
  /// Error{invalid_argument}: a tcp listener without a secret (see Trust).
  explicit StoreServer(Listener listener, StoreServerOptions options = {});
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  const Endpoint& endpoint() const { return endpoint_; }
  /// Proven connections, and how many of those wait for a key now.
  int clients() const;
  int waiting() const;

 private:
  class Loop;

  const Endpoint endpoint_;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace lockstep
