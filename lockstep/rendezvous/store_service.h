// What requests do to the table, and who is waiting for which key. The one place where a client's request
// changes what another client gets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/rendezvous/memory_store.h"
#include "lockstep/rendezvous/store_connection.h"

namespace lockstep {

/// Thread safety: one thread (the server's).
class StoreService {
 public:
  explicit StoreService(StoreLimits limits)
      : limits_(limits), traffic_(std::make_shared<StoreBudget>(limits.traffic_bytes)), table_(limits) {}

  /// Queues the replies that the request causes, its own and those of clients that waited for what it set.
  /// Returns the descriptors of all connections that now have something to flush; one may stand there twice.
  /// Throws Error{corrupt_data}: not a request.
  std::vector<int> answer(StoreConnection& client, const StoreRequest& request);

  /// Executes the client's last will. Returns as answer() does. Has to be called before a connection that was
  /// ever passed to answer() is destroyed.
  std::vector<int> forget(StoreConnection& client);

  /// For what is kept, and for what is on the way.
  const std::shared_ptr<StoreBudget>& budget() const { return table_.budget(); }
  const std::shared_ptr<StoreBudget>& traffic() const { return traffic_; }

  /// Clients that wait for a key.
  std::size_t waiting() const { return waiting_.size(); }

 private:
  struct Waiting {
    std::vector<std::string> keys;  // as in the request; an index into it is what the wire says
    std::size_t left = 0;           // of them, not there yet
    bool wants_value = false;       // a get, not a wait
    StoreShare share;
  };
  struct Will {
    std::string key;
    std::string value;
    StoreShare share;
  };
  using Waiter = std::pair<StoreConnection*, std::size_t>;  // and the index in Waiting::keys
  struct Waiters {
    std::set<Waiter> all;
    StoreShare share;
  };

  void execute(StoreConnection& client, const StoreRequest& request);
  void park(StoreConnection& client, const std::vector<std::string>& keys, bool wants_value);
  void keep_will(StoreConnection& client, const std::string& key, const std::string& value);
  void wake(const std::string& key);
  void add_waiter(const std::string& key, const Waiter& waiter, StoreShare& share);
  void stop_waiting(StoreConnection& client);

  const StoreLimits limits_;
  const std::shared_ptr<StoreBudget> traffic_;
  MemoryStore table_;
  std::unordered_map<StoreConnection*, Waiting> waiting_;
  std::map<std::string, Waiters> waiters_;  // of each key that is waited for
  std::unordered_map<StoreConnection*, Will> wills_;
  std::vector<int> touched_;
};

}  // namespace lockstep
