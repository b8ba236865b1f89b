#include "lockstep/train/replicas/same_options.h"

#include <string>

#include "lockstep/base/hash.h"
#include "lockstep/train/optimizer/option_values.h"
#include "lockstep/train/tensor/number_text.h"

namespace lockstep {

std::vector<Fact> option_facts(const ParameterGroups& groups) {
  std::vector<Fact> facts;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const std::string of = groups.size() == 1 ? "" : " of parameter group " + std::to_string(group);
    facts.push_back({"optimizer" + of, kind_of_options(groups[group].options())});
    for (const auto& [name, value] : option_values(groups[group].options()))
      facts.push_back({name + of, number_text(value)});
  }
  return facts;
}

std::uint32_t option_digest(const ParameterGroups& groups) {
  std::string bytes;
  for (const auto& group : groups) {
    bytes += kind_of_options(group.options());
    for (const auto& [name, value] : option_values(group.options()))
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return fnv1a_32(bytes);
}

void require_same_options(const Group& group, const torch::optim::Optimizer& optimizer) {
  require_same_facts(group, option_facts(optimizer.param_groups()),
                     "Set the optimizer's options alike on every rank, before the same backward");
}

std::optional<std::uint32_t> SameOptions::digest(std::uint64_t /*pass*/) {
  return option_digest(optimizer_.param_groups());
}

void SameOptions::compare(const Group& group, std::uint64_t /*pass*/, bool /*has_digest*/) {
  require_same_options(group, optimizer_);
}

}  // namespace lockstep
