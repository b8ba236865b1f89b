// Gradients of matrices as products of two thin ones: a matrix of n x m travels as (n + m) * rank numbers.
// What is lost is added to the next step's gradient. After Vogels, Karimireddy, Jaggi: PowerSGD (2019).
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <vector>

#include "lockstep/train/data_parallel/communication_hook.h"

namespace lockstep {

struct PowerSgdOptions {
  std::int64_t rank = 1;  ///< of the approximation: more is nearer to the average, and travels longer
  /// The first so many steps average gradients as they are: early ones are hard to approximate.
  std::uint64_t start_after = 1000;
  /// A gradient that would not travel as less than 1/so much of its size travels as it is.
  double least_compression = 2;
  bool error_feedback = true;  ///< what a step loses is added to the next one's gradient
  bool warm_start = true;      ///< a step begins where the last one ended, or else anew at random
  std::uint64_t seed = 0;
};

/// Lossy: with error feedback the sum of the gradients over many steps is right, that of one is not.
/// All ranks have the same bits where their processors are of one kind; elsewhere replicas part by roundings.
/// Gradients in halves and those of less than two dimensions travel as they are.
/// Memory: a copy of the gradients with error feedback, another while a step is under way. Cost per matrix:
/// two products of n x m by rank in each direction, and two collectives for each bucket.
class PowerSgdHook final : public CommunicationHook {
 public:
  /// Throws Error{invalid_argument} for a rank below 1.
  explicit PowerSgdHook(const PowerSgdOptions& options = {});
  ~PowerSgdHook() override;

  std::string name() const override;
  Work begin(const GradientBucket& bucket) override;
  std::optional<Work> proceed(const GradientBucket& bucket) override;
  void forget() override;

 private:
  struct Matrix {
    torch::Tensor gradient;  // in its bucket
    torch::Tensor value;     // n x m: with what was lost before
    torch::Tensor left;      // n x rank, in `first`
    torch::Tensor right;     // m x rank, in `second`
    torch::Tensor lost;      // n x m; undefined without error feedback
  };
  struct State {
    std::vector<Matrix> matrices;
    std::vector<torch::Tensor> others;        // gradients that travel as they are
    std::vector<torch::Tensor> other_places;  // for each: where in `first`
    torch::Tensor first, second;              // what travels in the first collective, and in the second
    std::uint64_t steps = 0;
    int stage = 0;
  };
  State& state_of(const GradientBucket& bucket);
  State make_state(const GradientBucket& bucket) const;
  bool is_worth_it(const torch::Tensor& gradient) const;
  std::int64_t rank_for(const torch::Tensor& matrix) const;
  void choose_right(const GradientBucket& bucket, State& state) const;

  PowerSgdOptions options_;
  std::map<std::size_t, State> states_;  // by bucket
  std::uint64_t steps_before_ = 0;       // when buckets were made anew
};

}  // namespace lockstep
