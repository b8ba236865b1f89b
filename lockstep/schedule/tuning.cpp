#include "lockstep/schedule/tuning.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/json_fields.h"
#include "lockstep/base/quote.h"
#include "lockstep/base/split.h"

namespace lockstep {

/// default_tuning.json, which the build turns into a source.
extern const char* const default_tuning;

namespace {

using base::list_in;
using base::number_in;
using base::text_in;
using base::within;
using nlohmann::json;

constexpr const char* format = "lockstep-tuning-1";
constexpr std::pair<Where, const char*> where_names[] = {{Where::slots, "slots"},
                                                         {Where::arena, "arena"},
                                                         {Where::private_memory, "private"},
                                                         {Where::channels, "channels"}};
constexpr std::uint64_t most_segment_bytes = std::uint64_t{1} << 30;
// The largest element (complex128) fits into every segment.
constexpr std::uint64_t least_segment_bytes = 64;
constexpr std::uint64_t least_staging_bytes = 4096;
constexpr int most_ranks = 1 << 20;

void require_algorithm(Operation operation, const std::string& name) {
  const auto entries = schedule::all_algorithms();
  const bool exists = std::any_of(entries.begin(), entries.end(), [&](const AlgorithmEntry& entry) {
    return entry.operation == operation && entry.name == name;
  });
  if (!exists) {
    throw_invalid_argument(base::quote(name) + " is no algorithm for " + std::string(to_string(operation)) +
                           "; there are " + schedule::names_of_algorithms(operation));
  }
}

Operation require_operation(const std::string& name) {
  const auto operation = schedule::operation_named(name);
  if (!operation)
    throw_invalid_argument(base::quote(name) + " is no collective that has a choice of algorithms");
  return *operation;
}

Where where_in(const json& rule) {
  const std::string name = text_in(rule, "where");
  for (const auto& [where, known] : where_names) {
    if (name == known) return where;
  }
  throw_invalid_argument("\"where\" must be slots, arena, private or channels, not " + base::quote(name));
}

Tuning::Rule rule_of(const json& value) {
  Tuning::Rule rule;
  rule.operation = require_operation(text_in(value, "operation"));
  rule.where = where_in(value);
  rule.ranks = static_cast<int>(number_in(value, "ranks", 1, most_ranks));
  for (const json& choice : list_in(value, "choose")) {
    within(fmt::format("choice {}", rule.choose.size() + 1), [&] {
      Tuning::Choice made{.algorithm = text_in(choice, "algorithm")};
      require_algorithm(rule.operation, made.algorithm);
      if (choice.contains("up_to_bytes")) made.up_to_bytes = number_in(choice, "up_to_bytes", 0, UINT64_MAX);
      if (!rule.choose.empty() && made.up_to_bytes < rule.choose.back().up_to_bytes) {
        throw_invalid_argument("\"up_to_bytes\" must not be smaller than the one before");
      }
      rule.choose.push_back(std::move(made));
    });
  }
  if (rule.choose.empty()) throw_invalid_argument("\"choose\" is empty");
  return rule;
}

Tuning tuning_of(const json& value) {
  base::require_format(value, format);
  Tuning tuning;
  tuning.segment_bytes = number_in(value, "segment_bytes", least_segment_bytes, most_segment_bytes);
  tuning.staging_bytes = number_in(value, "staging_bytes", least_staging_bytes, most_staging_bytes);
  for (const json& rule : list_in(value, "rules")) {
    within(fmt::format("rule {}", tuning.rules.size() + 1), [&] { tuning.rules.push_back(rule_of(rule)); });
  }
  if (value.contains("wire_dtype"))
    tuning.wire_dtype = wire_dtype_named(text_in(value, "wire_dtype"), "\"wire_dtype\"");
  if (value.contains("connections"))
    tuning.connections = static_cast<int>(number_in(value, "connections", 1, most_connections));
  if (value.contains("ranks_per_node"))
    tuning.ranks_per_node = static_cast<int>(number_in(value, "ranks_per_node", 1, most_ranks));
  if (const auto forced = value.find("forced"); forced != value.end()) {
    if (!forced->is_object()) throw_invalid_argument("\"forced\" must be an object");
    for (const auto& [operation, algorithm] : forced->items()) {
      tuning.forced.emplace_back(require_operation(operation), text_in(*forced, operation.c_str()));
      require_algorithm(tuning.forced.back().first, tuning.forced.back().second);
    }
  }
  return tuning;
}

/// "all_reduce=ring,broadcast=tree"
std::vector<std::pair<Operation, std::string>> parse_forced(const std::string& text) {
  std::vector<std::pair<Operation, std::string>> forced;
  for (const std::string& word : base::split(text, ',')) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) {
      throw_invalid_argument(base::quote(word) + " is not like all_reduce=ring");
    }
    forced.emplace_back(require_operation(word.substr(0, equals)), word.substr(equals + 1));
    require_algorithm(forced.back().first, forced.back().second);
  }
  return forced;
}

std::string read_text(const std::string& path) {
  const InputFile file(path, "tuning file");
  if (file.size() > most_tuning_bytes) {
    throw_invalid_argument(fmt::format("LOCKSTEP_TUNING_FILE: {} has {} bytes; a tuning file has at most {}",
                                       path, file.size(), most_tuning_bytes));
  }
  return file.text();
}

}  // namespace

std::optional<Dtype> wire_dtype_named(const std::string& name, const std::string& where) {
  if (name == "bf16") return Dtype::bf16;
  if (name == "f16" || name == "fp16") return Dtype::f16;
  if (name == "f32") return std::nullopt;
  throw_invalid_argument(where +
                         ": sums of f32 cross between hosts in bf16, f16 or, as they are, f32; not in " +
                         base::quote(name));
}

Tuning Tuning::parse(const std::string& text, const std::string& name) {
  return within(name, [&] {
    return tuning_of(
        base::parse_json(text, most_tuning_bytes, "`lockstep bench --calibrate` writes a new one"));
  });
}

const Tuning::Rule* Tuning::rule_for(Operation operation, Where where, int ranks) const {
  const Rule* best = nullptr;
  for (const Rule& rule : rules) {
    if (rule.operation != operation || rule.where != where) continue;
    const bool fits = rule.ranks <= ranks;
    const bool best_fits = best != nullptr && best->ranks <= ranks;
    if (best == nullptr || (fits && (!best_fits || rule.ranks > best->ranks)) ||
        (!fits && !best_fits && rule.ranks < best->ranks)) {
      best = &rule;
    }
  }
  return best;
}

std::string Tuning::to_text() const {
  json value = {{"format", format}, {"segment_bytes", segment_bytes}, {"staging_bytes", staging_bytes}};
  value["rules"] = json::array();
  for (const Rule& rule : rules) {
    json choose = json::array();
    for (const Choice& choice : rule.choose) {
      choose.push_back({{"algorithm", choice.algorithm}});
      if (choice.up_to_bytes != UINT64_MAX) choose.back()["up_to_bytes"] = choice.up_to_bytes;
    }
    const auto is_where = [&](const auto& entry) { return entry.first == rule.where; };
    value["rules"].push_back(
        {{"operation", to_string(rule.operation)},
         {"where", std::find_if(std::begin(where_names), std::end(where_names), is_where)->second},
         {"ranks", rule.ranks},
         {"choose", choose}});
  }
  if (wire_dtype) value["wire_dtype"] = to_string(*wire_dtype);
  if (connections > 1) value["connections"] = connections;
  if (ranks_per_node > 0) value["ranks_per_node"] = ranks_per_node;
  for (const auto& [operation, algorithm] : forced) value["forced"][to_string(operation)] = algorithm;
  return value.dump(1);
}

Tuning Tuning::standard() { return parse(default_tuning, "default_tuning.json"); }

Tuning Tuning::from_environment() {
  const auto path = env::text("LOCKSTEP_TUNING_FILE");
  Tuning tuning = path ? parse(read_text(*path), "tuning file " + *path) : standard();
  if (const auto text = env::text("LOCKSTEP_ALGORITHM")) {
    tuning.forced = within("LOCKSTEP_ALGORITHM=\"" + *text + "\"", [&] { return parse_forced(*text); });
  }
  if (const auto limit = env::bytes("LOCKSTEP_ONE_SHOT_BYTES")) {
    for (Rule& rule : tuning.rules) {
      if (rule.where == Where::slots) rule.choose = {{.algorithm = "one_shot", .up_to_bytes = *limit}};
    }
  }
  if (const auto bytes = env::bytes("LOCKSTEP_SEGMENT_BYTES")) {
    if (*bytes < least_segment_bytes || *bytes > most_segment_bytes) {
      throw_invalid_argument(
          fmt::format("LOCKSTEP_SEGMENT_BYTES is {}: messages over a connection have {} to {} bytes", *bytes,
                      least_segment_bytes, most_segment_bytes));
    }
    tuning.segment_bytes = *bytes;
  }
  if (const auto name = env::text("LOCKSTEP_WIRE_DTYPE"))
    tuning.wire_dtype = wire_dtype_named(*name, "LOCKSTEP_WIRE_DTYPE");
  if (const auto connections = env::integer("LOCKSTEP_CONNECTIONS", 1, most_connections))
    tuning.connections = static_cast<int>(*connections);
  if (const auto ranks = env::integer("LOCKSTEP_RANKS_PER_NODE", 1, most_ranks))
    tuning.ranks_per_node = static_cast<int>(*ranks);
  return tuning;
}

}  // namespace lockstep
