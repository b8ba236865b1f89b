// Which samples belong to which part of which step: a function of the two numbers alone, whoever computes the part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

/// One part of the batch of one step.
struct ElasticPart {
  std::uint64_t step = 0;  ///< from 0
  int number = 0;          ///< from 0
  int parts = 1;           ///< of each step
};

struct PartSamplerOptions {
  bool shuffle = true;     ///< each epoch in an order of its own; or else in the set's
  std::uint64_t seed = 0;  ///< of the orders; the same on every rank
};

/// Goes through a set of samples, `batch` of them in each step, in as many steps as there are whole batches in an epoch; what
/// is left over is in another epoch's batches, in another order. Thread safety: none.
class PartSampler {
 public:
  /// Throws Error{invalid_argument} if `batch` is 0 or there are fewer samples.
  PartSampler(std::size_t samples, std::size_t batch, const PartSamplerOptions& options = {});

  /// Of the samples of this part: batch / parts. Throws Error{invalid_argument} where the parts are not of one size. Cost: once an
  /// epoch the permutation of the whole set.
  std::vector<std::size_t> indices(const ElasticPart& part);

  std::uint64_t steps_per_epoch() const { return samples_ / batch_; }
  std::uint64_t epoch_of(std::uint64_t step) const { return step / steps_per_epoch(); }

 private:
  std::size_t samples_, batch_;
  PartSamplerOptions options_;
  std::optional<std::uint64_t> epoch_;  // whose order it is:
  std::vector<std::size_t> order_;
};

}  // namespace lockstep
