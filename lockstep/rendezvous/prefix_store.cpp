#include "lockstep/rendezvous/prefix_store.h"

#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {

PrefixStore::PrefixStore(std::shared_ptr<Store> store, std::string prefix)
    : store_(std::move(store)), prefix_(std::move(prefix)) {
  if (store_ == nullptr) throw_invalid_argument("a prefix store needs a store below it");
  if (prefix_.empty()) throw_invalid_argument("a prefix store needs a prefix");
}

std::string PrefixStore::full(const std::string& key) const {
  if (key.empty()) throw_invalid_argument("store key under \"" + prefix_ + "/\" is empty");
  return prefix_ + "/" + key;
}

void PrefixStore::set(const std::string& key, std::string value) { store_->set(full(key), std::move(value)); }

std::string PrefixStore::get(const std::string& key, Deadline deadline) {
  return store_->get(full(key), deadline);
}

std::optional<std::string> PrefixStore::try_get(const std::string& key) { return store_->try_get(full(key)); }

std::int64_t PrefixStore::add(const std::string& key, std::int64_t amount) {
  return store_->add(full(key), amount);
}

std::string PrefixStore::compare_set(const std::string& key, const std::string& expected,
                                     const std::string& desired) {
  return store_->compare_set(full(key), expected, desired);
}

void PrefixStore::wait(std::span<const std::string> keys, Deadline deadline) {
  std::vector<std::string> full_keys;
  full_keys.reserve(keys.size());
  for (const std::string& key : keys) full_keys.push_back(full(key));
  store_->wait(full_keys, deadline);
}

bool PrefixStore::erase(const std::string& key) { return store_->erase(full(key)); }
std::int64_t PrefixStore::erase_all(const std::string& prefix) { return store_->erase_all(full(prefix)); }

std::shared_ptr<void> PrefixStore::bequeath(const std::string& key, std::string value) {
  return store_->bequeath(full(key), std::move(value));
}

}  // namespace lockstep
