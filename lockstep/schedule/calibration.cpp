#include "lockstep/schedule/calibration.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

namespace lockstep::schedule {
namespace {

constexpr const char* slots_algorithm = "one_shot";

using Setting = std::tuple<Operation, Where>;
using TimesBySize = std::map<std::uint64_t, std::map<std::string, double>>;

const std::string* choice_for(const Tuning::Rule* rule, std::uint64_t bytes) {
  if (rule == nullptr) return nullptr;
  for (const Tuning::Choice& choice : rule->choose) {
    if (bytes <= choice.up_to_bytes) return &choice.algorithm;
  }
  return nullptr;
}

/// Halfway between two sizes, in powers of two.
std::uint64_t between(std::uint64_t smaller, std::uint64_t larger) {
  return static_cast<std::uint64_t>(
      std::llround(std::sqrt(static_cast<double>(smaller) * static_cast<double>(larger))));
}

std::string choose(const std::map<std::string, double>& times, const std::string& below,
                   const std::string* before, double tolerance) {
  const auto fastest = std::ranges::min_element(times, {}, [](const auto& timed) { return timed.second; });
  const auto is_as_good = [&](const std::string& name) {
    const auto found = times.find(name);
    return found != times.end() && found->second <= fastest->second * (1 + tolerance);
  };
  if (is_as_good(below)) return below;
  if (before != nullptr && is_as_good(*before)) return *before;
  return fastest->first;
}

std::vector<Tuning::Choice> choices(const TimesBySize& sizes, const Tuning::Rule* before, double tolerance) {
  std::vector<Tuning::Choice> made;
  std::uint64_t last = 0;
  for (const auto& [bytes, times] : sizes) {
    const std::string below = made.empty() ? "" : made.back().algorithm;
    std::string algorithm = choose(times, below, choice_for(before, bytes), tolerance);
    if (algorithm != below) {
      if (!made.empty()) made.back().up_to_bytes = between(last, bytes);
      made.push_back({.algorithm = std::move(algorithm)});
    }
    last = bytes;
  }
  return made;
}

/// The time with slots over the best other one's; the geometric mean of all places.
std::map<std::uint64_t, double> ratios_of_slots(const std::map<Setting, TimesBySize>& places,
                                                const std::map<Setting, TimesBySize>& slots,
                                                Operation operation) {
  std::map<std::uint64_t, std::vector<double>> ratios;
  for (const auto& [place, sizes] : slots) {
    const auto others = places.find(place);
    if (std::get<Operation>(place) != operation || others == places.end()) continue;
    for (const auto& [bytes, times] : sizes) {
      const auto other = others->second.find(bytes);
      if (other == others->second.end()) continue;
      const auto best =
          std::ranges::min_element(other->second, {}, [](const auto& timed) { return timed.second; });
      ratios[bytes].push_back(std::log(times.at(slots_algorithm) / best->second));
    }
  }
  std::map<std::uint64_t, double> means;
  for (const auto& [bytes, logs] : ratios) {
    double sum = 0;
    for (const double log : logs) sum += log;
    means[bytes] = std::exp(sum / static_cast<double>(logs.size()));
  }
  return means;
}

/// Up to the size before the first for which slots are slower.
std::uint64_t limit_of_slots(const std::map<std::uint64_t, double>& ratios, double tolerance) {
  std::uint64_t limit = 0;
  for (const auto& [bytes, ratio] : ratios) {
    if (ratio > 1 + tolerance) break;
    limit = bytes;
  }
  return limit;
}

void put(Tuning& table, Tuning::Rule rule) {
  std::erase_if(table.rules, [&](const Tuning::Rule& old) {
    return old.operation == rule.operation && old.where == rule.where && old.ranks == rule.ranks;
  });
  table.rules.push_back(std::move(rule));
}

}  // namespace

std::vector<const AlgorithmEntry*> candidates(Operation operation, Where where, bool has_nodes) {
  std::vector<const AlgorithmEntry*> found;
  for (const AlgorithmEntry& entry : all_algorithms()) {
    if (entry.operation != operation || (entry.is_for_nodes && !has_nodes)) continue;
    const bool is_on_host = where != Where::channels;
    const bool fits = entry.requirement == Requirement::channels ||
                      (entry.requirement == Requirement::hosts && !is_on_host) ||
                      (entry.requirement == Requirement::slots && is_on_host) ||
                      (entry.requirement == Requirement::staging && is_on_host) ||
                      (entry.requirement == Requirement::arena && where == Where::arena);
    if (fits) found.push_back(&entry);
  }
  return found;
}

Tuning calibrate(const Tuning& table, int ranks, std::span<const Timing> timings, double tolerance) {
  std::map<Setting, TimesBySize> places;
  std::map<Setting, TimesBySize> slots;
  std::set<Operation> operations;
  for (const Timing& timing : timings) {
    auto& group = timing.algorithm == slots_algorithm ? slots : places;
    group[{timing.operation, timing.where}][timing.bytes][timing.algorithm] = timing.seconds;
    operations.insert(timing.operation);
  }
  Tuning made = table;
  for (const auto& [place, sizes] : places) {
    const auto [operation, where] = place;
    put(made, {.operation = operation,
               .where = where,
               .ranks = ranks,
               .choose = choices(sizes, table.rule_for(operation, where, ranks), tolerance)});
  }
  for (const Operation operation : operations) {
    const auto ratios = ratios_of_slots(places, slots, operation);
    if (ratios.empty()) continue;
    put(made, {.operation = operation,
               .where = Where::slots,
               .ranks = ranks,
               .choose = {{.algorithm = slots_algorithm, .up_to_bytes = limit_of_slots(ratios, tolerance)}}});
  }
  return made;
}

}  // namespace lockstep::schedule
