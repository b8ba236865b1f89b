// The process that holds the store serves all others from one thread. Anyone may connect to it and send
// anything: a client that is slow, broken or hostile loses its own connection and nothing else.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "lockstep/base/secret.h"
#include "lockstep/base/socket.h"
#include "lockstep/rendezvous/store.h"

namespace lockstep {

struct StoreServerOptions {
  Trust trust = {};
  StoreLimits limits = {};
  int max_clients = 65536;  ///< connections in all; more wait in the kernel's backlog
  int max_unproven = 1024;  ///< of those, without a proof yet
  /// How long a connection may stay unproven; a tenth of it while there are max_unproven of them.
  std::chrono::nanoseconds proof_timeout = std::chrono::seconds(5);
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
