#include "lockstep/rendezvous/memory_store.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

using base::quote;

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
  auto& place = values_.try_emplace(key).first->second;
  // What it replaces need not fit beside it, unless somebody still reads that.
  StoreShare share = place && place.use_count() == 1 ? std::move(place->share) : StoreShare(budget_);
  const std::size_t had = share.bytes();
  if (!share.resize(key.size() + value.size() + store_entry_bytes)) {
    if (had > 0) place->share = std::move(share);
    if (!place) values_.erase(key);
    detail::throw_full("set of " + quote(key), limits_.total_bytes);
  }
  value.shrink_to_fit();
  place = std::make_shared<StoreValue>(StoreValue{std::move(value), std::move(share)});
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
  return values_.at(key)->text;
}

std::optional<std::string> MemoryStore::try_get(const std::string& key) {
  detail::require_key(key, limits_);
  const SharedValue value = find(key);
  return value ? std::optional(value->text) : std::nullopt;
}

std::int64_t MemoryStore::add(const std::string& key, std::int64_t amount) {
  detail::require_key(key, limits_);
  const std::scoped_lock lock(mutex_);
  const auto found = values_.find(key);
  const std::int64_t before = found == values_.end() ? 0 : number_in(key, found->second->text);
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
  std::string current = found == values_.end() ? "" : found->second->text;
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
  return values_.erase(key) > 0;
}

std::int64_t MemoryStore::erase_all(const std::string& prefix) {
  detail::require_key(prefix, limits_);
  const std::scoped_lock lock(mutex_);
  const auto first = values_.lower_bound(prefix);
  auto last = first;
  std::int64_t count = 0;
  for (; last != values_.end() && last->first.starts_with(prefix); ++last) ++count;
  values_.erase(first, last);
  return count;
}

SharedValue MemoryStore::find(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : found->second;
}

std::shared_ptr<void> MemoryStore::bequeath(const std::string& key, std::string value) {
  detail::require_key(key, limits_);
  detail::require_value(key, value.size(), limits_);
  return std::make_shared<std::string>(std::move(value));
}

}  // namespace lockstep
