// One step of a pipeline: this rank's actions, one after the other.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/pipeline/pipeline_parts.h"
#include "lockstep/train/pipeline/stage_messages.h"

namespace lockstep {

struct Pipeline::Step {
 public:
  Step(const Group& group, const pipeline::Plan& plan, const std::vector<Stage>& stages,
       const StageLinks& links, const PipelineOptions& options, PipelineLoss loss);

  /// Throws Error, which names rank, stage and micro-batch to all ranks.
  void run(const pipeline::Actions& actions, const torch::Tensor& input, const torch::Tensor& target);
  /// The output of the last stage, there.
  torch::Tensor evaluate(const torch::Tensor& input);
  /// The mean over the samples, on the rank of the last stage; 0 elsewhere.
  double loss() const { return loss_; }

 private:
  using Activation = StageMessages::Activation;
  using Tensors = std::vector<torch::Tensor>;
  using Cell = std::pair<int, int>;  // stage, micro-batch
  struct Kept {
    Tensors inputs, outputs;  // of a forward, until its backward
  };

  const Stage& stage_at(int number) const;
  bool is_here(int stage) const { return plan_.shape.rank_of(stage) == group_.rank(); }
  bool is_last(int stage) const { return stage + 1 == plan_.shape.stages; }
  void deal_out(const torch::Tensor& input, const torch::Tensor& target);
  void act(const pipeline::Action& action);
  void forward(const pipeline::Action& action);
  void backward(const pipeline::Action& action);
  void take_loss(int micro_batch, std::int64_t samples, Kept& kept);
  void require_finite(const Tensors& tensors, const std::string& what) const;
  /// Runs `work`; a failure of this rank's own is told to all with `where`.
  template <class Work>
  void named(const std::string& where, const Work& work);

  const Group& group_;
  const pipeline::Plan& plan_;
  const std::vector<Stage>& stages_;
  const PipelineOptions& options_;
  PipelineLoss loss_of_;
  StageMessages messages_;
  std::int64_t samples_ = 0;  // of the batch, on the last stage's rank
  Tensors inputs_, targets_;  // of the micro-batches
  std::map<Cell, Activation> activations_;
  std::map<Cell, Tensors> gradients_;
  std::map<Cell, Kept> kept_;
  double loss_ = 0;
};

}  // namespace lockstep
