// Whoever averages the gradients of a parameter must be the only one: averaged twice, they would be wrong
// without anybody noticing.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/train/replicas/named_tensor.h"

namespace lockstep {

/// As long as it lives, these parameters belong to its owner. Thread safe.
class ParameterClaim {
 public:
  /// Throws Error{invalid_argument} if one of them belongs to somebody, of this name or another.
  /// `require_whole`: throws while they are no model, as in the middle of a step that was cut off.
  ParameterClaim(std::span<const NamedTensor> parameters, const std::string& owner,
                 std::function<void()> require_whole = {});
  ParameterClaim(const ParameterClaim&) = delete;
  ParameterClaim& operator=(const ParameterClaim&) = delete;
  ~ParameterClaim();

 private:
  std::vector<torch::Tensor> claimed_;
};

/// Before they are saved: throws what an owner of one of them has against that.
void require_whole(std::span<const NamedTensor> parameters);

}  // namespace lockstep
