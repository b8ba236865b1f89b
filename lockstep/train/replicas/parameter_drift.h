// A wrapper does not see the optimizer that steps its model. But replicas are equal to the last bit as long as
// all optimizers do the same: so a few of their parameters' elements, other ones in each pass, are compared.
// See docs/decisions/0015.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <vector>

#include "lockstep/train/replicas/agreement.h"
#include "lockstep/train/replicas/named_tensor.h"

namespace lockstep {

/// Parameters that were equal on all ranks when this was made. Ranks whose processors round differently drift
/// by a unit in the last place in a step: that is no difference, and where it is found the next look is after
/// as many passes again.
/// Cost of digest(): about half a microsecond; on a GPU, where each look waits for it, it looks in few passes.
class ParameterDrift final : public Agreement {
 public:
  explicit ParameterDrift(std::vector<NamedTensor> parameters);

  std::optional<std::uint32_t> digest(std::uint64_t pass) override;
  /// Error{mismatch}: "parameter fc.bias has drifted apart: after 3 averaged backwards its element 2 is 0.125
  /// on rank 0 and 0.5 on rank 1. ..."
  void compare(const Group& group, std::uint64_t pass, bool has_digest) override;

  static constexpr std::size_t most_elements = 8;

 private:
  struct Element {
    std::size_t parameter;
    std::int64_t index;  ///< in the order of a contiguous tensor
  };
  std::vector<Element> sample(std::uint64_t pass) const;

  std::vector<NamedTensor> parameters_;  // plain ones of floating point
  bool is_in_main_memory_ = true;
  std::uint64_t next_ = 0;  // pass that is looked at
};

}  // namespace lockstep
