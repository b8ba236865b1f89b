#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "examine.h"
#include "lockstep/schedule/tuning.h"

namespace doctor {
namespace {

using lockstep::Operation;
using lockstep::Where;

constexpr std::array operations = {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather,
                                   Operation::broadcast, Operation::all_to_all};
constexpr std::array<std::pair<Where, const char*>, 4> places = {{{Where::slots, "slots"},
                                                                  {Where::private_memory, "private"},
                                                                  {Where::arena, "arena"},
                                                                  {Where::channels, "hosts"}}};

std::string size_text(std::uint64_t bytes) {
  if (bytes >= (1U << 20U) && bytes % (1U << 20U) == 0) return fmt::format("{} MiB", bytes >> 20U);
  if (bytes >= (1U << 10U) && bytes % (1U << 10U) == 0) return fmt::format("{} KiB", bytes >> 10U);
  return fmt::format("{} B", bytes);
}

/// "tree up to 32 KiB, ring above".
std::string text_of(const lockstep::Tuning::Rule& rule) {
  std::string text;
  for (const auto& choice : rule.choose) {
    const bool is_last = choice.up_to_bytes == UINT64_MAX;
    const bool is_only = rule.choose.size() == 1;
    text += (text.empty() ? "" : ", ") + choice.algorithm;
    if (!is_last) text += " up to " + size_text(choice.up_to_bytes);
    if (is_last && !is_only) text += " above";
  }
  return text;
}

}  // namespace

void examine_collectives(Report& report, int ranks) {
  const auto tuning = lockstep::Tuning::from_environment();
  report.section(
      fmt::format(
          "Collectives on {} ranks: slots for small ones, memory of a rank's own, the shared arena, between "
          "hosts",
          ranks),
      "collectives");
  for (const Operation operation : operations) {
    nlohmann::ordered_json by_place = nlohmann::ordered_json::object();
    std::string text;
    for (const auto& [where, name] : places) {
      const auto* rule = tuning.rule_for(operation, where, ranks);
      if (rule == nullptr) continue;
      text += (text.empty() ? "" : "; ") + std::string(name) + ": " + text_of(*rule);
      for (const auto& choice : rule->choose) {
        const bool is_last = choice.up_to_bytes == UINT64_MAX;
        by_place[name].push_back({{"algorithm", choice.algorithm},
                                  {"up_to_bytes", is_last ? nlohmann::ordered_json()
                                                          : nlohmann::ordered_json(choice.up_to_bytes)}});
      }
    }
    report.fact(std::string(to_string(operation)), text, std::string(to_string(operation)), by_place);
  }
}

}  // namespace doctor
