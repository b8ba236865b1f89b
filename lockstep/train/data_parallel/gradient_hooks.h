// Autograd tells nobody that a gradient is ready, unless asked by hooks. These are the hooks: they bring
// every new gradient into its bucket, unless it is averaged where it is, tell the Reducer, and see to it that only a backward pass that belongs
// to a training forward communicates.
//
//   forward    the output's hook               a backward that comes through here is one to average
//   backward   the output's hook again           Reducer::begin; asks the engine for a call at the end
//              leaf hook of each parameter       Reducer::place, while there is no grad() to add to
//              post-accumulate hook of each      grad() is final: Reducer::add
//              the engine's call at the end      Reducer::finalize
#pragma once

#include <torch/torch.h>

#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/train/data_parallel/reducer.h"
#include "lockstep/train/replicas/parameter_claim.h"

namespace lockstep {

/// Thread safety: one backward pass at a time. libtorch runs it on the thread that calls backward() and on
/// one for each device beside the CPU; whoever comes first begins it, and the last one ends it.
class GradientHooks : public std::enable_shared_from_this<GradientHooks> {
 public:
  struct Options {
    std::vector<NamedTensor> frozen = {};  ///< parameters that must stay without a gradient
    /// In messages: whose the parameters' gradients are.
    std::string owner = "DistributedDataParallel";
    /// Without watch() and expect_backward(): of each so many backward passes the last is one to average. 0:
    /// only those that were watched or expected are.
    int passes_per_average = 0;
  };

  /// Sets the hooks. Throws invalid_argument if a parameter has such hooks already.
  static std::shared_ptr<GradientHooks> attach(std::unique_ptr<Reducer> reducer, Options options);
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;
  /// Removes the hooks.
  ~GradientHooks();

  const std::vector<NamedTensor>& parameters() const { return reducer_->parameters(); }
  /// Whether each parameter is what it was when the hooks were set: not converted, resized, frozen or thawed.
  bool fit() const;
  /// Of the ranks, how many have gradients from now on; the others shadow().
  void set_contributors(int ranks) { contributors_ = ranks; }
  /// Takes part in the backward of the others, without gradients.
  void shadow() { reducer_->shadow(contributors_); }
  /// Passes that NonFinite::skip left without gradients.
  std::uint64_t skipped() const { return reducer_->skipped(); }
  bool all_ranks_threw() const { return reducer_->all_ranks_threw(); }

  /// Backward passes that came to these parameters, averaged or not, counted from what was set last.
  int passes() const { return passes_; }
  void set_passes(int passes) { passes_ = passes; }
  /// Averages what is in grad() now, as a pass that begins and ends here. Collective. Throws as
  /// Reducer::finalize() does.
  void average_now();

  /// A backward pass that comes through `output` is one to average. False if none can come through it.
  bool watch(const torch::Tensor& output, std::uint64_t forward_ns);
  /// Where the output cannot be watched: one more of the next backward passes is one to average.
  void expect_backward(std::uint64_t forward_ns) {
    ++expected_;
    expected_forward_ns_ = forward_ns;
  }

 private:
  struct Accumulated;
  struct Pass;

  GradientHooks(std::unique_ptr<Reducer> reducer, Options options);
  void attach_to(std::size_t parameter);
  void detach_from(std::size_t parameter);
  void begin_backward(std::uint64_t forward_ns);
  void note_pass();
  void begin_expected();
  void cancel();
  void leave_out_unreachable();
  torch::Tensor new_gradient(std::size_t parameter, const torch::Tensor& gradient);
  void accumulated(std::size_t parameter);
  void end_backward();
  void give_up() noexcept;

  // One thread at a time is in here during a backward. Recursive: a pass that cannot begin is given up.
  std::recursive_mutex mutex_;
  std::unique_ptr<Reducer> reducer_;
  Options options_;
  ParameterClaim claim_;
  std::vector<unsigned> leaf_hooks_;  // per parameter
  std::vector<int> early_;  // per parameter: the pass that accumulated it before any output was reached
  int expected_ = 0;
  std::uint64_t expected_forward_ns_ = 0;
  bool was_expected_ = false;  // the pass that is under way
  int contributors_;
  int passes_ = 0;
  int last_pass_ = -1;    // autograd's number of it
  bool partial_ = false;  // autograd::grad() or backward() of some parameters only
};

}  // namespace lockstep
