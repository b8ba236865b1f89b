#include "lockstep/rendezvous/store_service.h"

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

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
      const auto value = table_.try_get(fields[0]);
      return client.reply(value ? Status::done : Status::missing, value.value_or(""));
    }
    case Operation::get: return park(client, {.keys = fields, .left = 1, .wants_value = true});
    case Operation::add:
      client.reply(Status::done,
                   store_wire::encode_number(table_.add(fields[0], store_wire::decode_number(fields[1]))));
      return wake(fields[0]);
    case Operation::compare_set:
      client.reply(Status::done, table_.compare_set(fields[0], fields[1], fields[2]));
      return wake(fields[0]);
    case Operation::wait: return park(client, {.keys = fields, .left = fields.size(), .wants_value = false});
    case Operation::erase: return client.reply(table_.erase(fields[0]) ? Status::done : Status::missing);
    case Operation::bequeath:
      detail::require_key(fields[0], limits_);
      detail::require_value(fields[0], fields[1].size(), limits_);
      wills_[&client] = {fields[0], fields[1]};
      return client.reply(Status::done);
    case Operation::withdraw: return client.reply(wills_.erase(&client) > 0 ? Status::done : Status::missing);
  }
}

// Says what is there already; what is not is said by wake().
void StoreService::park(StoreConnection& client, Waiting waiting) {
  for (const std::string& key : waiting.keys) detail::require_key(key, limits_);
  if (waiting.wants_value) {
    if (const auto value = table_.try_get(waiting.keys[0])) return client.reply(Status::done, *value);
  }
  for (std::size_t i = 0; i < waiting.keys.size(); ++i) {
    if (table_.contains(waiting.keys[i])) {
      client.reply(Status::present, store_wire::encode_number(static_cast<std::int64_t>(i)));
      --waiting.left;
    } else {
      waiters_[waiting.keys[i]].emplace(&client, i);
    }
  }
  if (waiting.left == 0) return client.reply(Status::done);
  client.reply(Status::parked);
  waiting_.emplace(&client, std::move(waiting));
}

void StoreService::wake(const std::string& key) {
  const auto node = waiters_.extract(key);
  if (node.empty()) return;
  const auto value = table_.try_get(key);
  if (!value) {  // a compare_set that changed nothing
    waiters_.emplace(key, node.mapped());
    return;
  }
  for (const auto& [client, index] : node.mapped()) {
    touched_.push_back(client->fd());
    Waiting& waiting = waiting_.at(client);
    if (!waiting.wants_value)
      client->reply(Status::present, store_wire::encode_number(static_cast<std::int64_t>(index)));
    if (--waiting.left > 0) continue;
    client->reply(Status::done, waiting.wants_value ? std::string_view(*value) : std::string_view());
    waiting_.erase(client);
  }
}

std::vector<int> StoreService::forget(StoreConnection& client) {
  stop_waiting(client);
  const auto will = wills_.extract(&client);
  if (will.empty()) return {};
  const auto& [key, value] = will.mapped();
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
    entry->second.erase({&client, i});
    if (entry->second.empty()) waiters_.erase(entry);
  }
  waiting_.erase(found);
}

}  // namespace lockstep
