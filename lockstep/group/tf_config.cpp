#include "lockstep/group/tf_config.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

using base::quote;
using nlohmann::json;

constexpr std::size_t most_bytes = 1 << 20;
constexpr std::size_t most_tasks = 1 << 16;
constexpr const char* example =
    R"({"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}})";

[[noreturn]] void refuse(const std::string& why) { throw_invalid_argument("TF_CONFIG: " + why); }

json read(const std::string& text) {
  if (text.size() > most_bytes) refuse(fmt::format("{} bytes are more than {}", text.size(), most_bytes));
  try {
    json config = json::parse(text);
    if (!config.is_object()) refuse(fmt::format("it is no object; write for example {}", example));
    return config;
  } catch (const json::parse_error& error) {
    refuse(fmt::format("it is no JSON (at byte {}); write for example {}", error.byte, example));
  } catch (const json::out_of_range&) {
    refuse(fmt::format("it has a number that is too large to be one; write for example {}", example));
  }
}

const json& object_in(const json& config, const char* name) {
  const auto found = config.find(name);
  if (found == config.end() || !found->is_object())
    refuse(fmt::format("\"{}\" is missing, or no object; write for example {}", name, example));
  return *found;
}

/// The addresses of `type`'s tasks; none if it has no such entry.
std::vector<std::string> tasks(const json& cluster, const char* type) {
  std::vector<std::string> addresses;
  const auto found = cluster.find(type);
  if (found == cluster.end()) return addresses;
  if (!found->is_array()) refuse(fmt::format("cluster's \"{}\" is no list of addresses", type));
  if (found->size() > most_tasks)
    refuse(fmt::format("cluster's \"{}\" has more than {} tasks", type, most_tasks));
  for (const json& address : *found) {
    if (!address.is_string()) refuse(fmt::format("cluster's \"{}\" has an address that is no text", type));
    addresses.push_back(address.get<std::string>());
  }
  return addresses;
}

int index_of(const json& task, const std::string& type, std::size_t count) {
  const auto found = task.find("index");
  // TensorFlow takes both.
  std::int64_t index = -1;
  if (found != task.end() && found->is_number_integer()) {
    index = found->get<std::int64_t>();
  } else if (found != task.end() && found->is_string()) {
    index = env::parse_integer("TF_CONFIG: the task's index", found->get<std::string>(), 0, most_tasks);
  } else {
    refuse("the task has no index, or one that is no number");
  }
  if (index < 0 || index >= static_cast<std::int64_t>(count))
    refuse(fmt::format("the task is {} {}, but the cluster has {} of that type", quote(type), index, count));
  return static_cast<int>(index);
}

void set_address(TfConfig& config, const std::string& address) {
  const auto colon = address.rfind(':');
  const std::string where = fmt::format("TF_CONFIG: the port of {}", quote(address));
  if (colon == std::string::npos || colon == 0)
    refuse(fmt::format("address {} is not of the form host:port", quote(address)));
  config.host = address.substr(0, colon);
  if (config.host.starts_with('[') && config.host.ends_with(']'))
    config.host = config.host.substr(1, config.host.size() - 2);
  config.port = static_cast<std::uint16_t>(env::parse_integer(where, address.substr(colon + 1), 1, 65535));
}

}  // namespace

TfConfig parse_tf_config(const std::string& text) {
  const json config = read(text);
  const json& cluster = object_in(config, "cluster");
  const json& task = object_in(config, "task");
  const auto type_found = task.find("type");
  if (type_found == task.end() || !type_found->is_string())
    refuse("the task has no type, or one that is no text");
  const auto type = type_found->get<std::string>();
  const auto servers = tasks(cluster, "ps"), chiefs = tasks(cluster, "chief"),
             workers = tasks(cluster, "worker");
  if (chiefs.size() > 1) refuse(fmt::format("the cluster has {} chiefs; there can be one", chiefs.size()));
  if (type == "evaluator") return {};
  TfConfig found{.size = 0, .rank = -1};
  std::string first;
  for (const auto& [name, addresses] :
       {std::pair("ps", &servers), {"chief", &chiefs}, {"worker", &workers}}) {
    if (type == name) found.rank = found.size + index_of(task, type, addresses->size());
    if (first.empty() && !addresses->empty()) first = addresses->front();
    found.size += static_cast<int>(addresses->size());
  }
  if (found.rank < 0)
    refuse(fmt::format("the task's type {} is none of chief, worker, ps, evaluator", quote(type)));
  set_address(found, first);
  if (!servers.empty()) found.role = type;
  return found;
}

}  // namespace lockstep
