// A fast step that averages nothing is worth nothing, so what a run leaves is compared: the parameters with
// those of the other ranks, and with those that one process has after as many steps with all ranks' batches.
// agreement.py is the same for the peers; benchmarks/training/run refuses what differs.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "lockstep/lockstep.h"
#include "lockstep/train.h"
#include "training/models.h"
#include "training/way.h"

namespace bench {

inline torch::Tensor flat_parameters(const torch::nn::Sequential& net) {
  std::vector<torch::Tensor> parts;
  for (const auto& parameter : net->parameters()) parts.push_back(parameter.detach().flatten().cpu());
  return torch::cat(parts);
}

/// Collective. The largest difference to rank 0's parameters.
inline double difference_between_ranks(const lockstep::Group& world, const torch::Tensor& mine) {
  const auto theirs = mine.clone();
  lockstep::broadcast(world, theirs, 0).wait();
  const auto difference = (mine - theirs).abs().max().to(torch::kFloat64);
  lockstep::all_reduce(world, difference, lockstep::ReduceOp::max).wait();
  return difference.item<double>();
}

/// The parameters that one process has after the same steps, with libtorch's own optimizer and nothing of
/// ours. Each step is one on all ranks' batches together; a model with buffers (batch norm) sees them one
/// after the other, because its statistics are those of a rank's batch.
inline torch::Tensor parameters_of_one_process(const Options& options, int ranks, torch::Device device) {
  Model model = model_named(options.model);
  std::vector<torch::Tensor> inputs;
  std::vector<torch::Tensor> targets;
  for (int rank = 0; rank < ranks; ++rank) {
    const Batch batch = batch_of(model, rank);
    inputs.push_back(batch.input.to(device));
    targets.push_back(batch.target.to(device));
  }
  if (model.net->buffers().empty()) {
    inputs = {torch::cat(inputs)};
    targets = {torch::cat(targets)};
  }
  model.net->to(device);
  const Optimizer optimizer = make_optimizer(options, model.net);
  for (int step = 0; step < options.warm_up + options.steps; ++step) {
    optimizer->zero_grad();
    for (std::size_t part = 0; part < inputs.size(); ++part) {
      const auto output = model.net->forward(inputs[part]);
      const auto loss = torch::nn::functional::cross_entropy(output, targets[part]);
      (loss / static_cast<double>(inputs.size())).backward();
    }
    optimizer->step();
  }
  return flat_parameters(model.net);
}

/// How far a run went astray: its distance to the one process's parameters, as a share of the way that these
/// went.
inline double error_to_one_process(const Options& options, int ranks, torch::Device device,
                                   const torch::Tensor& mine) {
  const auto begin = flat_parameters(model_named(options.model).net);
  const auto end = parameters_of_one_process(options, ranks, device);
  return ((mine - end).norm() / (end - begin).norm()).item<double>();
}

}  // namespace bench
