// A store inside one process: for ranks that are threads, for a world of one, and the table behind
// StoreServer.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>

#include "lockstep/rendezvous/store.h"
#include "lockstep/rendezvous/store_budget.h"

namespace lockstep {

class MemoryStore : public Store {
 public:
  explicit MemoryStore(StoreLimits limits = {})
      : limits_(limits), budget_(std::make_shared<StoreBudget>(limits.total_bytes)) {}

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

  /// The value without a copy of it; null if there is none now.
  SharedValue find(const std::string& key);
  bool contains(const std::string& key) { return find(key) != nullptr; }

  /// For what else is held for those who use the store.
  const std::shared_ptr<StoreBudget>& budget() const { return budget_; }

 private:
  void put(const std::string& key, std::string value);  // with mutex_ held

  const StoreLimits limits_;
  const std::shared_ptr<StoreBudget> budget_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<StoreValue>> values_;  // guarded by mutex_
};

}  // namespace lockstep
