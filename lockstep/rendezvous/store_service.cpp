#include "lockstep/rendezvous/store_service.h"

#include <fmt/core.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

using store_wire::Operation;
using store_wire::Status;

std::size_t fields_of(Operation operation) {
  switch (operation) {
    case Operation::set:
    case Operation::bequeath:
    case Operation::add: return 2;
    case Operation::compare_set: return 3;
    default: return 1;
  }
}

std::size_t cost_of(const std::string& key) { return key.size() + store_entry_bytes; }

}  // namespace

std::vector<int> StoreService::answer(StoreConnection& client, const StoreRequest& request) {
  if (request.operation != Operation::wait && request.fields.size() != fields_of(request.operation)) {
    throw Error(ErrorCode::corrupt_data,
                "store message: a request with " + std::to_string(request.fields.size()) + " fields");
  }
  try {
    execute(client, request);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    client.reply(Status::refused, std::string_view(error.what()).substr(0, store_wire::refusal_bytes));
  }
  touched_.push_back(client.fd());
  return std::exchange(touched_, {});
}

void StoreService::execute(StoreConnection& client, const StoreRequest& request) {
  const auto& fields = request.fields;
  switch (request.operation) {
    case Operation::set:
      table_.set(fields[0], fields[1]);
      client.reply(Status::done);
      return wake(fields[0]);
    case Operation::try_get: {
      SharedValue value = table_.find(fields[0]);
      return value ? client.reply(Status::done, std::move(value)) : client.reply(Status::missing);
    }
    case Operation::get: return park(client, fields, true);
    case Operation::add:
      client.reply(Status::done,
                   store_wire::encode_number(table_.add(fields[0], store_wire::decode_number(fields[1]))));
      return wake(fields[0]);
    case Operation::compare_set:
      client.reply(Status::done, table_.compare_set(fields[0], fields[1], fields[2]));
      return wake(fields[0]);
    case Operation::wait: return park(client, fields, false);
    case Operation::erase: return client.reply(table_.erase(fields[0]) ? Status::done : Status::missing);
    case Operation::erase_all:
      return client.reply(Status::done, store_wire::encode_number(table_.erase_all(fields[0])));
    case Operation::bequeath:
      detail::require_key(fields[0], limits_);
      detail::require_value(fields[0], fields[1].size(), limits_);
      keep_will(client, fields[0], fields[1]);
      return client.reply(Status::done);
    case Operation::withdraw: return client.reply(wills_.erase(&client) > 0 ? Status::done : Status::missing);
  }
}

void StoreService::keep_will(StoreConnection& client, const std::string& key, const std::string& value) {
  StoreShare share(budget());
  if (!share.resize(cost_of(key) + value.size()))
    detail::throw_full("bequeath of " + base::quote(key), limits_.total_bytes);
  wills_.insert_or_assign(&client, Will{key, value, std::move(share)});
}

// Says what is there already; what is not is said by wake().
void StoreService::park(StoreConnection& client, const std::vector<std::string>& keys, bool wants_value) {
  for (const std::string& key : keys) detail::require_key(key, limits_);
  if (wants_value) {
    if (SharedValue value = table_.find(keys[0])) return client.reply(Status::done, std::move(value));
  }
  std::size_t bytes = 0;  // in the list, and as much again in waiters_ where nobody waits for them yet
  for (const std::string& key : keys) bytes += cost_of(key);
  StoreShare share(budget());
  if (!share.resize(2 * bytes))
    detail::throw_full(fmt::format("wait for {} keys", keys.size()), limits_.total_bytes);
  std::size_t left = keys.size();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (table_.contains(keys[i])) {
      client.reply(Status::present, store_wire::encode_number(static_cast<std::int64_t>(i)));
      --left;
    } else {
      add_waiter(keys[i], {&client, i}, share);
    }
  }
  if (left == 0) return client.reply(Status::done);
  share.shrink(bytes);
  client.reply(Status::parked);
  waiting_.emplace(&client, Waiting{keys, left, wants_value, std::move(share)});
}

// `share` has room for it.
void StoreService::add_waiter(const std::string& key, const Waiter& waiter, StoreShare& share) {
  const auto [place, is_new] = waiters_.try_emplace(key, Waiters{.all = {}, .share = StoreShare(budget())});
  place->second.all.insert(waiter);
  if (!is_new) return;
  share.shrink(share.bytes() - cost_of(key));
  (void)place->second.share.resize(cost_of(key));
}

void StoreService::wake(const std::string& key) {
  auto node = waiters_.extract(key);
  if (node.empty()) return;
  const SharedValue value = table_.find(key);
  if (!value) {  // a compare_set that changed nothing
    waiters_.insert(std::move(node));
    return;
  }
  for (const auto& [client, index] : node.mapped().all) {
    touched_.push_back(client->fd());
    Waiting& waiting = waiting_.at(client);
    if (!waiting.wants_value)
      client->reply(Status::present, store_wire::encode_number(static_cast<std::int64_t>(index)));
    if (--waiting.left > 0) continue;
    waiting.wants_value ? client->reply(Status::done, value) : client->reply(Status::done);
    waiting_.erase(client);
  }
}

std::vector<int> StoreService::forget(StoreConnection& client) {
  stop_waiting(client);
  auto will = wills_.extract(&client);
  if (will.empty()) return {};
  const auto& [key, value, share] = will.mapped();
  will.mapped().share.shrink(0);  // for what it becomes
  try {
    table_.set(key, table_.try_get(key).value_or("") + value);
    wake(key);
  } catch (const Error& error) {
    log::debug("store: a last will was not executed: " + std::string(error.what()));
  }
  return std::exchange(touched_, {});
}

void StoreService::stop_waiting(StoreConnection& client) {
  const auto found = waiting_.find(&client);
  if (found == waiting_.end()) return;
  for (std::size_t i = 0; i < found->second.keys.size(); ++i) {
    const auto entry = waiters_.find(found->second.keys[i]);
    if (entry == waiters_.end()) continue;
    entry->second.all.erase({&client, i});
    if (entry->second.all.empty()) waiters_.erase(entry);
  }
  waiting_.erase(found);
}

}  // namespace lockstep
