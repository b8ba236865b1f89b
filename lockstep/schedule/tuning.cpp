#include "lockstep/schedule/tuning.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/quote.h"
#include "lockstep/base/split.h"

namespace lockstep {

/// default_tuning.json, which the build turns into a source.
extern const char* const default_tuning;

namespace {

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

std::optional<Operation> operation_named(const std::string& name) {
  for (const AlgorithmEntry& entry : schedule::all_algorithms()) {
    if (to_string(entry.operation) == name) return entry.operation;
  }
  return std::nullopt;
}

std::string algorithms_of(Operation operation) {
  std::string list;
  for (const AlgorithmEntry& entry : schedule::all_algorithms()) {
    if (entry.operation == operation) list += (list.empty() ? "" : ", ") + std::string(entry.name);
  }
  return list;
}

void require_algorithm(Operation operation, const std::string& name) {
  const auto entries = schedule::all_algorithms();
  const bool exists = std::any_of(entries.begin(), entries.end(), [&](const AlgorithmEntry& entry) {
    return entry.operation == operation && entry.name == name;
  });
  if (!exists) {
    throw_invalid_argument(base::quote(name) + " is no algorithm for " + std::string(to_string(operation)) +
                           "; there are " + algorithms_of(operation));
  }
}

Operation require_operation(const std::string& name) {
  const auto operation = operation_named(name);
  if (!operation)
    throw_invalid_argument(base::quote(name) + " is no collective that has a choice of algorithms");
  return *operation;
}

const json& member(const json& object, const char* name) {
  if (!object.is_object()) throw_invalid_argument("is no object with \"" + std::string(name) + "\"");
  const auto found = object.find(name);
  if (found == object.end()) throw_invalid_argument("lacks \"" + std::string(name) + "\"");
  return *found;
}

std::string text_in(const json& object, const char* name) {
  const json& value = member(object, name);
  if (!value.is_string()) throw_invalid_argument("\"" + std::string(name) + "\" must be a string");
  return value.get<std::string>();
}

/// Never a list or an object, which may be large, and as deep as it is large.
std::string shown(const json& value) {
  if (value.is_string()) return base::quote(value.get_ref<const std::string&>());
  return value.is_structured() ? "an " + std::string(value.type_name()) : value.dump();
}

std::uint64_t number_in(const json& object, const char* name, std::uint64_t least, std::uint64_t most) {
  const json& value = member(object, name);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() < least ||
      value.get<std::uint64_t>() > most) {
    throw_invalid_argument(
        fmt::format("\"{}\" must be a whole number from {} to {}, not {}", name, least, most, shown(value)));
  }
  return value.get<std::uint64_t>();
}

const json& list_in(const json& object, const char* name) {
  const json& value = member(object, name);
  if (!value.is_array()) throw_invalid_argument("\"" + std::string(name) + "\" must be a list");
  return value;
}

/// Adds where a mistake is to what it is.
template <class Parse>
auto within(const std::string& place, Parse parse) {
  try {
    return parse();
  } catch (const Error& error) {
    throw_invalid_argument(place + ": " + error.what());
  }
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
  if (const std::string found = text_in(value, "format"); found != format) {
    throw_invalid_argument("\"format\" is " + base::quote(found) + ", not " + base::quote(format));
  }
  Tuning tuning;
  tuning.segment_bytes = number_in(value, "segment_bytes", least_segment_bytes, most_segment_bytes);
  tuning.staging_bytes = number_in(value, "staging_bytes", least_staging_bytes, most_staging_bytes);
  for (const json& rule : list_in(value, "rules")) {
    within(fmt::format("rule {}", tuning.rules.size() + 1), [&] { tuning.rules.push_back(rule_of(rule)); });
  }
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

Tuning Tuning::parse(const std::string& text, const std::string& name) {
  return within(name, [&] {
    if (text.size() > most_tuning_bytes) throw_invalid_argument("is too long");
    const json value = json::parse(text, nullptr, false);
    if (value.is_discarded())
      throw_invalid_argument("is no JSON; `lockstep bench --calibrate` writes a new one");
    return tuning_of(value);
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
    tuning.segment_bytes = std::clamp(*bytes, least_segment_bytes, most_segment_bytes);
  }
  if (const auto ranks = env::integer("LOCKSTEP_RANKS_PER_NODE", 1, most_ranks))
    tuning.ranks_per_node = static_cast<int>(*ranks);
  return tuning;
}

}  // namespace lockstep
