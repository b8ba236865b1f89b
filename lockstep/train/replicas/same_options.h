// Ranks whose optimizers step with other learning rates, options or formulas train other models, and nothing
// fails: the losses fall on all of them. So they compare what they step with.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/train/optimizer/parameter_state.h"
#include "lockstep/train/replicas/agreement.h"
#include "lockstep/train/replicas/same_facts.h"
#include "lockstep/train/replicas/same_optimizers.h"

namespace lockstep {

/// {"learning rate", "0.1"}, {"momentum", "0"}, ...; of several groups of parameters {"learning rate of
/// parameter group 1", "0.1"}. See option_values.h for what of which optimizer.
std::vector<Fact> option_facts(const ParameterGroups& groups);
/// The same as one number.
std::uint32_t option_digest(const ParameterGroups& groups);

/// The options of the optimizer, which outlives this, in each pass.
class SameOptions final : public Agreement {
 public:
  explicit SameOptions(const torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {}
  std::optional<std::uint32_t> digest(std::uint64_t pass) override;
  void compare(const Group& group, std::uint64_t pass, bool has_digest) override;

 private:
  const torch::optim::Optimizer& optimizer_;
};

/// Where there is no word of status to ride on: steps 0, 1, 2, 4, 8 and so on, and each 64th. A comparison of
/// its own costs nothing in the mean there.
constexpr bool is_step_to_compare(std::uint64_t step) { return (step & (step - 1)) == 0 || step % 64 == 0; }

}  // namespace lockstep
