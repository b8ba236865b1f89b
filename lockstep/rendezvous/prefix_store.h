// Two groups, or two restarts of a job, must not read each other's keys in one store: each gets a part of its
// own, where the key "a" is the underlying store's "<prefix>/a".
#pragma once

#include <memory>

#include "lockstep/rendezvous/store.h"

namespace lockstep {

/// As the underlying store in everything else; errors name the full key. Prefixes nest.
class PrefixStore : public Store {
 public:
  /// `prefix` is not empty; Error{invalid_argument} otherwise.
  PrefixStore(std::shared_ptr<Store> store, std::string prefix);

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

 private:
  std::string full(const std::string& key) const;

  std::shared_ptr<Store> store_;
  std::string prefix_;
};

}  // namespace lockstep
