// Gradients one step stale: a backward waits for nobody, and leaves the average of the step before.
#pragma once

#include <torch/torch.h>

#include <array>
#include <map>
#include <optional>
#include <string>

#include "lockstep/train/data_parallel/communication_hook.h"

namespace lockstep {

/// Sends this step's gradients, and gives the average of the last step's, whose transfer had a whole step to
/// end: a rank that is late now and then stops nobody, as long as it is less than a step behind. Between
/// hosts the transfer runs in the background; inside a host ranks copy when they wait, so that there only
/// lateness is hidden.
///
/// What it costs in training: each update follows the gradient at the parameters of one step ago. With a
/// small learning rate the way is the same, a step later; one near the largest that converges does not
/// converge any more (for plain SGD on a quadratic bowl that largest one is half as large), and momentum
/// makes that worse. Take half the learning rate to begin with, and compare the loss.
///
/// The first backward leaves gradients of 0; so do the next one, where buckets are made anew before it, and
/// the one after a model changed or NonFinite::skip left gradients out. The last step's are never used.
/// Memory: two copies of the gradients.
class StaleAverageHook final : public CommunicationHook {
 public:
  std::string name() const override { return "average of the step before"; }
  Work begin(const GradientBucket& bucket) override;
  std::optional<Work> proceed(const GradientBucket& bucket) override;
  void forget() override { states_.clear(); }

 private:
  /// Of a bucket. `work` goes first: its buffer is free when it is over.
  struct State {
    std::array<torch::Tensor, 2> gradients;
    std::size_t sent = 0;  // which of them is under way
    bool is_first = true;
    Work work;
  };
  std::map<std::size_t, State> states_;  // by the bucket's number
};

}  // namespace lockstep
