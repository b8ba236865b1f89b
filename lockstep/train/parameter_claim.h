// Whoever averages the gradients of a parameter must be the only one: averaged twice, they would be wrong
// without anybody noticing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/train/replicas.h"

namespace lockstep {

/// As long as it lives, these parameters belong to its owner. Thread safe.
class ParameterClaim {
 public:
  /// Throws Error{invalid_argument} if one of them belongs to somebody, of this name or another.
  ParameterClaim(std::span<const NamedTensor> parameters, const std::string& owner);
  ParameterClaim(const ParameterClaim&) = delete;
  ParameterClaim& operator=(const ParameterClaim&) = delete;
  ~ParameterClaim();

 private:
  std::vector<torch::Tensor> claimed_;
};

}  // namespace lockstep
