// What stages of a pipeline hand to each other: tensors, whose shapes travel with them, so that micro-batches may differ.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "lockstep/group/collectives.h"
#include "lockstep/group/group.h"

namespace lockstep {

/// Messages between the stages of one step. Thread safety: none.
class StageMessages {
 public:
  /// `device`: this stage's, on which tensors arrive, but for those that a stage on another one has in main memory.
  StageMessages(const Group& group, torch::Device device) : group_(group), device_(device) {}

  /// What a stage makes of a micro-batch.
  struct Activation {
    std::int64_t samples = 0;  ///< of the micro-batch
    std::vector<torch::Tensor> tensors = {};
  };

  /// Begins to send; the tensors are kept until it is over. At most 16 tensors of up to 8 dimensions.
  void send_activation(const Activation& activation, int rank);
  /// Waits for it. Tensors that want a gradient are leaves that require one.
  Activation receive_activation(int rank);

  /// `alike`: what the gradients are of, the same at both ends. Those that are undefined arrive so.
  void send_gradient(const std::vector<torch::Tensor>& gradients, const std::vector<torch::Tensor>& alike,
                     int rank);
  std::vector<torch::Tensor> receive_gradient(const std::vector<torch::Tensor>& alike, int rank);

  /// Waits until everything that was sent has been received.
  void finish();

 private:
  struct Sent {
    torch::Tensor tensor;
    Work work;
  };

  void send(torch::Tensor tensor, int rank, int tag);

  const Group& group_;
  torch::Device device_;
  std::deque<Sent> sent_;
};

}  // namespace lockstep
