#include "lockstep/schedule/select.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

namespace lockstep::schedule {
namespace {

/// What a table's limits are compared with.
std::uint64_t bytes_of(const Call& call, std::size_t element_bytes) {
  std::size_t elements = call.elements;
  if (!call.counts.empty() && call.operation != Operation::all_to_all) {
    elements = std::accumulate(call.counts.begin(), call.counts.end(), std::size_t{0}) / call.counts.size();
  }
  return std::uint64_t{elements} * element_bytes;
}

// Algorithms for hosts send to each other host directly, or through all of them. With more hosts messages become too
// short for the one, and the way too long for the other.
constexpr int most_direct_hosts = 16;

int hosts_of(const Call& call) {
  return call.host_of.empty() ? 1 : *std::ranges::max_element(call.host_of) + 1;
}

bool can_do(const AlgorithmEntry& entry, const Call& call, const Neighbourhood& where, Where buffers) {
  if (entry.operation != call.operation) return false;
  if (!call.counts.empty() && !entry.allows_counts) return false;
  if (call.keeps_order && !entry.keeps_order) return false;
  if (entry.is_for_nodes && call.ranks_per_node == 0) return false;
  if (call.narrow_wire && !entry.allows_narrow_wire) return false;
  switch (entry.requirement) {
    case Requirement::slots: return buffers == Where::slots;
    case Requirement::arena: return buffers == Where::arena;
    case Requirement::staging:
      return where.is_one_host() && buffers != Where::slots &&
             call.window_elements >= static_cast<std::size_t>(call.ranks);
    case Requirement::hosts:
      return buffers == Where::channels && (hosts_of(call) <= most_direct_hosts || call.narrow_wire) &&
             call.window_elements >= static_cast<std::size_t>(call.ranks);
    case Requirement::exchange:
      return buffers == Where::channels && where.has_engine &&
             call.window_elements >= static_cast<std::size_t>(call.ranks);
    case Requirement::channels: return buffers != Where::slots;
  }
  return false;
}

const AlgorithmEntry* named(std::string_view name, const Call& call, const Neighbourhood& where,
                            Where buffers) {
  for (const AlgorithmEntry& entry : all_algorithms()) {
    if (entry.name == name && can_do(entry, call, where, buffers)) return &entry;
  }
  return nullptr;
}

const std::string* forced_for(const Tuning& tuning, Operation operation) {
  for (const auto& [forced, algorithm] : tuning.forced) {
    if (forced == operation) return &algorithm;
  }
  return nullptr;
}

}  // namespace

int ranks_per_node(std::span<const int> nodes) {
  if (nodes.empty()) return 0;
  const auto change = std::ranges::adjacent_find(nodes, std::ranges::not_equal_to());
  if (change == nodes.end()) return 0;
  const auto ranks = static_cast<std::size_t>(change - nodes.begin()) + 1;
  if (nodes.size() % ranks != 0) return 0;
  std::set<int> seen;
  for (std::size_t first = 0; first < nodes.size(); first += ranks) {
    const auto of_one = nodes.subspan(first, ranks);
    const bool is_one = std::ranges::all_of(of_one, [&](int node) { return node == of_one.front(); });
    if (!is_one || of_one.front() < 0 || !seen.insert(of_one.front()).second) return 0;
  }
  return static_cast<int>(ranks);
}

bool is_one_shot(const Call& call, std::size_t element_bytes, const Neighbourhood& where,
                 const Tuning& tuning) {
  if (!where.is_one_host() || named("one_shot", call, where, Where::slots) == nullptr) return false;
  if (slot_elements(call) > where.slot_bytes / element_bytes) return false;
  if (const std::string* forced = forced_for(tuning, call.operation)) return *forced == "one_shot";
  const Tuning::Rule* rule = tuning.rule_for(call.operation, Where::slots, call.ranks);
  return rule != nullptr && bytes_of(call, element_bytes) <= rule->choose.back().up_to_bytes;
}

const AlgorithmEntry& select(const Call& call, std::size_t element_bytes, const Neighbourhood& where,
                             const Tuning& tuning) {
  Where buffers = Where::channels;
  if (where.is_one_host())
    buffers = call.buffers == BufferClass::arena ? Where::arena : Where::private_memory;
  if (is_one_shot(call, element_bytes, where, tuning)) buffers = Where::slots;
  if (const std::string* forced = forced_for(tuning, call.operation)) {
    if (const auto* entry = named(*forced, call, where, buffers)) return *entry;
  }
  if (const auto* entry = where.has_engine ? named("mpi", call, where, buffers) : nullptr) return *entry;
  if (const Tuning::Rule* rule = tuning.rule_for(call.operation, buffers, call.ranks)) {
    const std::uint64_t bytes = bytes_of(call, element_bytes);
    for (const Tuning::Choice& choice : rule->choose) {
      if (bytes > choice.up_to_bytes) continue;
      if (const auto* entry = named(choice.algorithm, call, where, buffers)) return *entry;
    }
  }
  const auto entries = all_algorithms();
  return *std::find_if(entries.begin(), entries.end(),
                       [&](const AlgorithmEntry& entry) { return can_do(entry, call, where, buffers); });
}

}  // namespace lockstep::schedule
