#include "lockstep/train/replicas/finite_gradients.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"

namespace lockstep {

bool is_finite(const torch::Tensor& tensor) {
  return std::isfinite(tensor.sum().item<double>()) || tensor.isfinite().all().item<bool>();
}

void take_non_finite(const Group& group, NonFinite policy, std::uint64_t step, std::uint64_t mine,
                     std::span<const NamedTensor> parameters) {
  if (policy != NonFinite::stop) return;
  std::vector<std::uint64_t> all(static_cast<std::size_t>(group.size()));
  all_gather(group, std::span(&mine, 1), all).wait();
  const auto first = std::ranges::min_element(all);
  std::string where = "the ranks' gradients are finite, but not their sum";
  std::optional<int> culprit;
  if (*first < parameters.size()) {
    culprit = group.world_rank(static_cast<int>(first - all.begin()));
    where = "the gradient of parameter " + parameters[*first].name + " on rank " + std::to_string(*culprit) +
            " is not finite";
  }
  throw Error(ErrorCode::invalid_argument,
              "step " + std::to_string(step) + ": " + where +
                  "; no rank took this step. Lower the learning rate, clip gradients, or skip such steps "
                  "(NonFinite::skip)",
              culprit);
}

bool are_all_finite(const Group& group, NonFinite policy, std::uint64_t step,
                    std::span<const NamedTensor> gradients) {
  if (policy == NonFinite::ignore) return true;
  const auto first = std::ranges::find_if(gradients, [](const NamedTensor& gradient) {
    return gradient.tensor.defined() && !is_finite(gradient.tensor);
  });
  const auto mine = static_cast<std::uint64_t>(first - gradients.begin());
  std::array lowest = {mine};
  all_reduce(group, lowest, ReduceOp::min).wait();
  if (lowest.front() == gradients.size()) return true;
  take_non_finite(group, policy, step, mine, gradients);
  return false;
}

}  // namespace lockstep
