// One step of an optimizer that all ranks take together: each has a slice of the model, adds all ranks'
// gradients for it and updates it.
//
//   inside a host     parameters and state are one copy for all ranks; gradients are read where they are
//
//     gradients        rank 0 [####|    ]   [    |####] rank 1
//                              \    \         /    /
//     parameters, state         [ by 0 | by 1 ]             one pass over memory between two meetings
//
//   between hosts     reduce_scatter of gradients, the update of each rank's slice, all_gather of parameters
//   on GPUs           the same, where the parameters are; the host knows of each step that it went well before it is over. Where the ranks
//                     share the GPU, one kernel adds up the gradients and updates all ranks' parameters
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/execute/work.h"
#include "lockstep/group/gpu_update.h"
#include "lockstep/trace/event.h"
#include "lockstep/train/optimizer/update_rule.h"
#include "lockstep/train/replicas/non_finite.h"
#include "lockstep/train/replicas/parameter_claim.h"
#include "lockstep/train/replicas/sharded_state.h"
#include "lockstep/train/replicas/step_record.h"
#include "lockstep/train/replicas/step_watch.h"
#include "lockstep/train/sharded/flat_model.h"
#include "lockstep/train/sharded/sharded_optimizer_base.h"
#include "lockstep/train/sharded/step_versions.h"
#include "lockstep/train/tensor/shared_heap.h"

namespace lockstep {

class ShardedStep {
 public:
  using Groups = ParameterGroups;
  using States = ParameterStates;

  /// Collective; see ShardedOptimizer.
  ShardedStep(const torch::nn::Module& module, Group group, const Groups& groups,
              const ShardedOptions& options);
  ShardedStep(const ShardedStep&) = delete;
  ShardedStep& operator=(const ShardedStep&) = delete;
  /// Not collective: this rank gets what it has in common with others for itself.
  ~ShardedStep();

  /// Collective. Leaves a TrainingStepEvent in the group's record.
  void take(Groups& groups, States& states);
  /// Steps that were not taken, for NonFinite::skip.
  std::uint64_t skipped() const { return skipped_; }

  /// Throws Error{aborted} if a step was cut off while some rank was changing parameters.
  void require_whole() const;
  /// Throws Error{invalid_argument} unless `states` is all of the state: where each rank has a part it is, once gathered or loaded.
  void require_gathered(const Groups& groups, const States& states) const;
  /// Collective. Puts the state of all slices into `states`, where it is not there anyway.
  void gather_state(const Groups& groups, States& states);

  // See ShardedState.
  std::vector<ParameterSlice> slices(const Groups& groups);
  std::vector<SliceState> slice_states(const Groups& groups, States& states);
  void restore_slices(const Groups& groups, States& states, std::span<const SliceState> restored);
  /// `states` were loaded. Others may still read what was there, so it goes with the next step.
  void take_over_loaded_state() { is_loaded_ = true; }

 private:
  /// Arrays of state for one family; without shared memory of this rank's slice alone.
  struct FamilyState {
    std::array<std::shared_ptr<FlatArray>, most_state_arrays> arrays;
    std::shared_ptr<FlatArray> masters;  ///< halves: the parameters in f32
    std::size_t begin = 0;               ///< position of the first element
    torch::Tensor gradients;             ///< without shared memory: this rank's
    torch::Tensor sum;                   ///< of all ranks', for its slice, where moves_together() is not
  };
  /// What this rank knows of a parameter in this step.
  struct Current {
    const ParameterOptions* options = nullptr;  ///< null: of no group, never changed
    torch::Tensor gradient;
    torch::Tensor reachable;  ///< memory for gradients that others cannot read where they are
    StateArrays views;        ///< what `states` holds, where ranks share memory
    std::uint64_t steps = 0;
    std::int64_t version = -1;  ///< halves: of the parameter when masters were last equal to it
    bool is_updated = false;    ///< some rank has a gradient
    bool is_filled = false;     ///< its part of FamilyState::gradients is not all zeros
  };
  /// Elements of a family's array, which all take a step as `like` does.
  struct Run {
    Range elements;
    const Current* like;
  };
  using Row = std::vector<std::uint64_t>;

  std::size_t number_of(const torch::Tensor& parameter) const;
  void find_options(const Groups& groups);
  void reduce_and_update(Groups& groups, States& states);
  Error told_what_is_left(const Error& error) const;
  template <class Submit>
  void await(Submit submit);
  Row make_row();
  std::uint64_t place_gradient(std::size_t parameter);
  void exchange(const Row& row);
  double norm();
  void require_same_options(const Groups& groups) const;
  void collect_gradients();
  void add_gradients();
  void forget_state();
  void make_state(const States& states);
  void make_family_state(std::size_t family, std::size_t arrays);
  torch::Tensor own_part(std::size_t family, const FlatArray& array) const;
  static torch::Tensor part_of(const FamilyState& state, const FlatArray& array, const Segment& segment);
  std::shared_ptr<FlatArray> gathered(const FlatModel::Family& family, const FlatArray& slice) const;
  std::vector<std::size_t> slice_counts(const FlatModel::Family& family) const;
  Work gather_slices(const FlatModel::Family& family, const torch::Tensor& own,
                     const torch::Tensor& whole) const;
  void bring_masters_up_to_date(std::size_t family);
  void take_over(std::size_t parameter, const States& states);
  std::vector<Segment> own_segments() const;
  SliceState state_of(std::size_t parameter, const Segment& own) const;
  void hand_out(States& states);
  double squared_norm() const;
  double squared_norm_on_gpu() const;
  bool may_go_on(double norm);
  std::uint64_t first_non_finite() const;
  void update_slices(double scale);
  bool needs_norm() const;
  bool moves_together() const;
  void update_on_gpu(double scale);
  std::vector<SharedUpdate> shared_updates(double scale) const;
  std::vector<Run> runs_in(const FlatModel::Family& family, const Range& elements) const;
  void spread_parameters();
  std::vector<const std::byte*> sources(const FlatModel::Family& family, const Segment& segment) const;

  Group group_;
  ShardedOptions options_;
  std::unique_ptr<SharedHeap> heap_;
  FlatModel model_;
  ParameterClaim claim_;
  StepWatch watch_;
  bool shares_memory_;
  bool sees_all_state_;                         ///< of all slices
  bool shares_gpu_ = false;                     ///< all ranks of the group have the one
  std::map<const void*, std::size_t> numbers_;  // of parameters, by their TensorImpl
  std::vector<FamilyState> family_states_;
  std::vector<Current> current_;
  StepVersions versions_;
  std::vector<Row> rows_;   // of all ranks, in this step
  bool is_loaded_ = false;  // state that is not taken over yet
  std::uint64_t skipped_ = 0;
  std::uint64_t taken_ = 0;
  trace::TrainingStepEvent event_{};  // of this step
  std::uint64_t waited_ns_ = 0;       // by the host, of this and all steps before
  StepRecord record_;
};

}  // namespace lockstep
