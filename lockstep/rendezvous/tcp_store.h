// The client of a StoreServer, over tcp or an abstract unix socket: what ranks in different processes meet
// in.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/base/proof.h"
#include "lockstep/base/socket.h"
#include "lockstep/rendezvous/store.h"

namespace lockstep {

struct TcpStoreOptions {
  Trust trust = {};
  std::string job = {};  ///< as the server's
  int rank = -1;         ///< of the world, which this client is
  /// How long the store may take over a call without a deadline of its own (set, try_get, add, …).
  std::chrono::nanoseconds operation_timeout = std::chrono::seconds(60);
};

/// Each call in progress has a connection to itself, kept for the next call afterwards: a get that waits is
/// in nobody's way, and giving up is closing. A process that calls from one thread has one connection, and
/// one more for each will.
///
/// Errors, besides Store's: peer_lost at once when the server goes, also in the middle of a wait ("the store
/// at tcp:10.0.0.1:29500 is gone (its host, rank 0, ended?)"); timeout also from a server that is stopped.
/// Not to be used in a forked child: Error{unsupported}.
///
/// REQUIRES: no call is in progress when it is destroyed.
class TcpStore : public Store {
 public:
  /// Connects, and proves the secret; a server that is not there yet is waited for until `deadline`.
  /// Errors: timeout (nobody there), invalid_argument (wrong secret or job, or none over tcp), corrupt_data (another
  /// version).
  TcpStore(Endpoint endpoint, Deadline deadline, TcpStoreOptions options = {});
  ~TcpStore() override;

  void set(const std::string& key, std::string value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired) override;
  void wait(std::span<const std::string> keys, Deadline deadline) override;
  bool erase(const std::string& key) override;
  std::int64_t erase_all(const std::string& prefix) override;
  std::shared_ptr<void> bequeath(const std::string& key, std::string value) override;

  const Endpoint& endpoint() const { return endpoint_; }

 private:
  class Call;  // one exchange over one connection
  class Will;  // a connection whose end executes it

  Socket connect(bool wait_for_server, Deadline deadline) const;
  Socket borrow(Deadline deadline);
  void give_back(Socket socket);
  Deadline usual_deadline() const { return Deadline::after(options_.operation_timeout); }

  const Endpoint endpoint_;
  const TcpStoreOptions options_;
  const int process_;  // who may use the connections: not a forked child
  std::mutex mutex_;
  std::vector<Socket> idle_;  // guarded by mutex_
};

}  // namespace lockstep
