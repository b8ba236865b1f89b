// A model that is too large for one rank, or quicker on several: its layers are cut into stages, each rank has its own, and the
// parts of a batch (micro-batches) follow each other through them.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/pipeline/plan.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/checkpoint/state_dict.h"
#include "lockstep/train/pipeline/layers.h"
#include "lockstep/train/replicas/non_finite.h"

namespace lockstep {

class ParameterDrift;
class SharedHeap;
class StageLinks;

/// Alike on all ranks, but for `device`, whose kind is that of `replicas` and `tensor`.
struct PipelineOptions {
  /// naive, gpipe, 1f1b or interleaved: see `lockstep pipelines`.
  std::string schedule = "1f1b";
  /// A batch is dealt out to so many, as evenly as can be.
  int micro_batches = 1;
  /// More than one where the schedule takes several: stages lie on the ranks in turn.
  int stages_per_rank = 1;
  /// How many layers each stage has. Empty: as many as the others, or by `sample`.
  std::vector<std::size_t> cut = {};
  /// The input of a micro-batch, of rank 0: every layer's forward and backward is timed with it, and the cut is the one whose
  /// slowest stage is the quickest; with `tensor` of each rank 0 of its pipelines. Costs a few passes through the whole model on rank 0 and its device, one layer in memory at a time.
  std::optional<torch::Tensor> sample = std::nullopt;
  /// Of what stages hand on to the next, and of the loss: stop names the rank, the stage and the micro-batch of the first that is no
  /// number. skip is not supported.
  NonFinite non_finite = NonFinite::ignore;
  /// The ranks that have the same stages of other replicas of the pipeline (a Grid's column): all begin with the values of the
  /// first one, and gradients are averaged over them.
  std::optional<Group> replicas = std::nullopt;
  /// Of this rank's stages: layers are moved there when they are built, inputs and targets as they come. Stages on GPUs that reach each
  /// other hand on there; of tensors that a layer makes in main memory the next stage has them there, too.
  torch::Device device = torch::kCPU;
  /// Where layers are ColumnParallelLinear and the like: the ranks that have the other parts of the same stages (a Grid's row). They are
  /// processes: ranks that are threads of one wait for each other while layers are made. What takes the whole model (gather_state() and
  /// scatter_state(), and the files of pipelines below) throws Error{unsupported}.
  std::optional<Group> tensor = std::nullopt;
  /// See DataParallelOptions. What is handed on lies there, and a receiver on the same host copies it while the sender works on.
  bool shared_heap = true;
};

/// Of the output of the last stage and its target: the mean over the samples.
using PipelineLoss = std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)>;

/// Making one is collective. Layers are built with random numbers of their own, drawn from rank 0's generator, so that a model
/// begins with the same values however it is cut.
///
/// - Gradients are those of one process that runs the same micro-batches one after the other and weights each by its share of
///   the samples: the same bits, in every schedule, cut and number of ranks (a GPU's kernels may add in another order).
/// - Batch norm sees micro-batches. Dropout draws other numbers than in one process, unless a layer seeds its own.
/// - A failure on any rank names rank, stage and micro-batch to all, the group is closed, and no optimizer has stepped.
///
/// Thread safety: one call at a time.
class Pipeline {
 public:
  /// Throws Error: invalid_argument (no layers, fewer layers than stages, a cut that is none, micro_batches below 1, an unknown
  /// schedule, ties of what is not there, tensor-parallel layers without `tensor`); mismatch (ranks that have other layers or options).
  Pipeline(const Layers& layers, const Group& group, const PipelineOptions& options = {});
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  ~Pipeline();

  /// Collective: forward, backward, and nothing under way afterwards. Leaves the gradients of the mean loss of the batch in this
  /// rank's parameters, on top of what is there. `input` is looked at where the first stage is, `target` where the last one is,
  /// others may pass undefined tensors; the first dimension is the samples. Returns the mean loss, on all ranks.
  /// Throws Error: invalid_argument where there are fewer samples than micro-batches, or layers do not fit; mismatch where the
  /// replicas are no longer equal; peer_lost on the others. Cost: what the plan says (simulate.h); besides a broadcast of a number, and with `replicas` an all_reduce of the
  /// stage's gradients.
  double step(const torch::Tensor& input, const torch::Tensor& target, const PipelineLoss& loss);

  /// Collective: the output of the last stage, there, on its device; undefined on the other ranks. One micro-batch, no gradients.
  torch::Tensor evaluate(const torch::Tensor& input);

  /// Of this rank's stages, under the whole model's names.
  std::vector<torch::Tensor> parameters() const { return module_->parameters(); }
  auto named_parameters() const { return module_->named_parameters(); }
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  void zero_grad(bool set_to_none = true) { module_->zero_grad(set_to_none); }
  void train(bool on = true) { module_->train(on); }
  void eval() { module_->eval(); }

  /// Collective, over `tensor`, too. Clips this rank's gradients by the norm of the whole model's, in which tied parameters, and what
  /// all of `tensor` have, count once; returns it.
  double clip_grad_norm(double max_norm);

  const pipeline::Plan& plan() const { return plan_; }
  /// How many layers each stage has.
  const std::vector<std::size_t>& cut() const { return cut_; }
  /// What each layer took with the sample, forward and backward, in seconds; empty without one.
  const std::vector<double>& layer_seconds() const { return layer_seconds_; }
  const Group& group() const { return group_; }
  /// Whether `tensor` has several ranks.
  bool has_parts() const { return options_.tensor && options_.tensor->size() > 1; }
  /// Of the whole model's, in their order.
  const std::vector<std::string>& layer_names() const { return names_; }

  /// Collective. The whole model's parameters and buffers, in the layers' order, in main memory of rank 0; empty on the others. Throws
  /// Error{unsupported} with `tensor`: save_whole_state_dict(path, tensor, *module()) makes a file of each stage.
  StateDict gather_state() const;
  /// Collective. Rank 0's tensors into the stages, found by name. Throws Error{invalid_argument} on all ranks, before any has
  /// changed, where some are missing, unexpected or of another shape.
  void scatter_state(const StateDict& tensors);

 private:
  struct Stage;
  struct Step;
  struct Tie;

  void require_alike(const Layers& layers) const;
  void decide_cut(const Layers& layers);
  BuiltLayer build_layer(const Layers& layers, std::size_t index) const;
  void measure(const Layers& layers);
  void build_stages(const Layers& layers);
  void make_ties(const Layers& layers);
  /// Layer of "3.weight".
  std::size_t layer_of(const std::string& parameter) const;
  int rank_of_layer(std::size_t layer) const;
  void require_known_parts() const;
  std::vector<std::array<torch::Tensor, 2>> set_tied_gradients_aside();
  void add_up_ties(const std::vector<std::array<torch::Tensor, 2>>& before);
  void average_over_replicas(std::vector<Work>& works);
  /// Stages know nothing of the replicas and parts of others, nor these of them: all are told.
  void give_up(const std::exception& why);
  void compare_replicas();

  Group group_;
  PipelineOptions options_;
  pipeline::Plan plan_;
  std::unique_ptr<StageLinks> links_;
  std::vector<std::size_t> cut_;
  std::vector<std::string> names_;  // of all layers
  std::vector<double> layer_seconds_;
  std::uint64_t seed_ = 0;
  std::vector<Stage> stages_;  // this rank's, in their order
  std::vector<Tie> ties_;
  std::shared_ptr<torch::nn::Module> module_;
  std::unique_ptr<SharedHeap> heap_;
  std::unique_ptr<ParameterDrift> drift_;  // of replicas, where there are any
  std::uint64_t steps_ = 0;
};

/// Collective. Rank 0 writes the whole model, as save_state_dict() does of a model that is not cut.
void save_state_dict(const std::filesystem::path& path, const Pipeline& pipeline);
/// Collective. Rank 0 reads, everybody has its stages' tensors; files are the same however the model is cut.
void load_state_dict(const std::filesystem::path& path, Pipeline& pipeline, const std::string& key = "");

/// Collective over the pipeline's ranks (of several replicas one saves). One file with the whole model and the state of all ranks'
/// optimizers, as save_checkpoint() writes it of a model that is not cut, which loads it, too: one optimizer over the
/// parameters in the layers' order. Cost: rank 0 has the whole of both in memory meanwhile.
///
/// Throws Error on all ranks: as save_checkpoint() does; unsupported (an optimizer that is not SGD, Adam or AdamW of libtorch's or a
/// fused one; amsgrad); invalid_argument (a parameter that is none of the pipeline's, a ShardedOptimizer); mismatch (ranks
/// whose optimizers have other options, or other groups of parameters).
void save_checkpoint(const std::filesystem::path& path, const Pipeline& pipeline,
                     const torch::optim::Optimizer& optimizer, const CheckpointInfo& info = {});
/// Collective, on every replica. Each rank has its stages' part of model and state, however the model was cut when it was saved, or
/// not at all. Otherwise as load_checkpoint(); throws as the save does, too.
CheckpointInfo load_checkpoint(const std::filesystem::path& path, Pipeline& pipeline,
                               torch::optim::Optimizer& optimizer);

// The forms for a model that every rank has as a whole would write what one rank has.
void save_state_dict(const std::filesystem::path& path, const Group& group,
                     const Pipeline& pipeline) = delete;
void save_checkpoint(const std::filesystem::path& path, const Group& group, const Pipeline& pipeline,
                     const torch::optim::Optimizer& optimizer, const CheckpointInfo& info = {},
                     const CheckpointOptions& options = {}) = delete;

}  // namespace lockstep
