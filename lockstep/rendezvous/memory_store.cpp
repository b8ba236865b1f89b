#include "lockstep/rendezvous/memory_store.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

std::int64_t number_in(const std::string& key, const std::string& text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, failure] = std::from_chars(text.data(), end, number);
  if (failure != std::errc{} || stopped != end) {
    throw_invalid_argument("store add to " + quote(key) + ": its value " + quote(text) +
                           " is not a whole number");
  }
  return number;
}

}  // namespace

void MemoryStore::put(const std::string& key, std::string value) {
  detail::require_value(key, value.size(), limits_);
  const auto found = values_.find(key);
  const std::size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  const std::size_t after = key.size() + value.size();
  if (total_bytes_ - before + after > limits_.total_bytes) {
    throw_invalid_argument("store set of " + quote(key) + ": the store is full (" +
                           std::to_string(limits_.total_bytes) +
                           " bytes of keys and values); erase what is done with");
  }
  if (found == values_.end()) {
    values_.emplace(key, std::move(value));
  } else {
    found->second = std::move(value);
  }
  total_bytes_ = total_bytes_ - before + after;
  changed_.notify_all();
}

void MemoryStore::set(const std::string& key, std::string value) {
  detail::require_key(key, limits_);
  const std::scoped_lock lock(mutex_);
  put(key, std::move(value));
}

std::string MemoryStore::get(const std::string& key, Deadline deadline) {
  detail::require_key(key, limits_);
  std::unique_lock lock(mutex_);
  const bool there = changed_.wait_until(lock, deadline.when(), [&] { return values_.contains(key); });
  if (!there) detail::throw_missing(std::span(&key, 1));
  return values_.at(key);
}

std::optional<std::string> MemoryStore::try_get(const std::string& key) {
  detail::require_key(key, limits_);
  const std::scoped_lock lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

std::int64_t MemoryStore::add(const std::string& key, std::int64_t amount) {
  detail::require_key(key, limits_);
  const std::scoped_lock lock(mutex_);
  const auto found = values_.find(key);
  const std::int64_t before = found == values_.end() ? 0 : number_in(key, found->second);
  std::int64_t sum = 0;
  if (__builtin_add_overflow(before, amount, &sum)) {
    throw_invalid_argument("store add to " + quote(key) + ": " + std::to_string(before) + " + " +
                           std::to_string(amount) + " does not fit into 64 bits");
  }
  put(key, std::to_string(sum));
  return sum;
}

std::string MemoryStore::compare_set(const std::string& key, const std::string& expected,
                                     const std::string& desired) {
  detail::require_key(key, limits_);
  const std::scoped_lock lock(mutex_);
  const auto found = values_.find(key);
  std::string current = found == values_.end() ? "" : found->second;
  if (current != expected) return current;
  put(key, desired);
  return desired;
}

void MemoryStore::wait(std::span<const std::string> keys, Deadline deadline) {
  for (const std::string& key : keys) detail::require_key(key, limits_);
  std::vector<std::string> missing(keys.begin(), keys.end());
  std::unique_lock lock(mutex_);
  const bool complete = changed_.wait_until(lock, deadline.when(), [&] {
    std::erase_if(missing, [&](const std::string& key) { return values_.contains(key); });
    return missing.empty();
  });
  if (!complete) detail::throw_missing(missing);
}

bool MemoryStore::erase(const std::string& key) {
  detail::require_key(key, limits_);
  const std::scoped_lock lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  total_bytes_ -= key.size() + found->second.size();
  values_.erase(found);
  return true;
}

bool MemoryStore::contains(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  return values_.contains(key);
}

std::shared_ptr<void> MemoryStore::bequeath(const std::string& key, std::string value) {
  detail::require_key(key, limits_);
  detail::require_value(key, value.size(), limits_);
  return std::make_shared<std::string>(std::move(value));
}

}  // namespace lockstep
