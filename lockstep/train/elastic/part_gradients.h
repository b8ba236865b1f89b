// The gradient of a batch that is computed in parts, by as many ranks as there are: the same bits however many.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/group/reproducible.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/tensor/flat_tensors.h"

namespace lockstep {

/// Parts are numbered from 0, and each rank has some that follow each other. Thread safety: none.
class PartGradients {
 public:
  /// Of these parameters. `looks`: each part's gradients are looked at for numbers that are none.
  PartGradients(std::vector<NamedTensor> parameters, int parts, bool looks);

  /// This rank's parts of `group`: [first, last).
  struct Share {
    int first, last;
  };
  Share begin(const Group& group);
  /// Takes the gradients that the part's backward has left in the parameters, and clears them.
  void add(double loss);
  /// Collective: the averages over all parts, held here until take().
  void finish();
  /// The averages into the parameters' grad(); those that no part has used have none. Returns the mean loss.
  double take();
  /// Holds no group any more: what finish() has left stays.
  void release();
  /// Forgets what is there; parameters have no gradients.
  void drop();

  /// After finish(): of the first part that has one. The same on all ranks.
  struct NonFiniteGradient {
    int part;
    int rank;  ///< that had it, as messages call it
    std::string parameter;
  };
  const std::optional<NonFiniteGradient>& non_finite() const { return non_finite_; }

 private:
  /// The loss, and then for each parameter whether it has a gradient.
  static constexpr std::size_t facts_before_parameters = 1;

  std::vector<NamedTensor> parameters_;
  int parts_;
  bool looks_;
  FlatPlan plan_;
  FlatTensors average_;
  std::optional<Group> group_;
  std::vector<ReproducibleSum> sums_;  // of each array, then of the facts
  std::vector<double> facts_;
  int next_ = 0;
  std::uint64_t first_bad_ = 0;
  std::optional<NonFiniteGradient> non_finite_;
};

}  // namespace lockstep
