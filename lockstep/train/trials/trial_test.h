// The test of tests for data-parallel training: ranks that share a batch must end where one process with the
// whole batch ends. Its ranks are threads in equivalence_test.cpp, processes in tests/multi_rank/training.
#pragma once

#include <torch/torch.h>

#include <string>

#include "lockstep/group/group.h"

namespace lockstep::test {

enum class Sabotage { none, sum, no_broadcast, same_shard, one_bucket_left_out, doubled_gradients };

enum class Rule { sgd, nesterov, adam, adamw };  ///< sgd: with momentum and weight decay

/// How the ranks train, with DistributedDataParallel unless it says otherwise; all but what rounds gives what
/// one process has.
enum class Way {
  plain,
  find_unused,
  static_graph,
  no_sync,  ///< two backwards for each step
  join,
  skip_non_finite,
  all_reduce_hook,
  fp16_hook,
  bf16_hook,
  power_sgd,       ///< of full rank
  thin_power_sgd,  ///< of rank 2
  optimizer,       ///< DistributedOptimizer
  optimizer_in_two_passes,
  optimizer_groups,
  optimizer_predivided,
  optimizer_fp16,
  optimizer_bf16,
  tape,  ///< DistributedGradientTape
  tape_fp16,
  tape_bf16,
};

struct Trial {
  Rule rule = Rule::sgd;
  bool sharded = false;  ///< by ShardedOptimizer, or else by DistributedDataParallel
  bool shared_heap = true;
  torch::ScalarType type = torch::kFloat64;
  bool set_to_none = true;  ///< the form of zero_grad
  double max_norm = 0;      ///< gradients are clipped to it, unless it is 0
  Way way = Way::plain;
  Sabotage sabotage = Sabotage::none;
};

/// As in messages: "sharded SGD Float no_sync".
std::string to_string(const Trial& trial);

struct Outcome {
  double loss_ratio = 0;      ///< after 100 steps, to before
  double relative_error = 0;  ///< of the parameters, to those of one process
  bool identical = false;     ///< parameters are the same bits on all ranks

  /// Within what the project promises.
  bool passes(const Trial& trial) const {
    return loss_ratio <= 0.5 && relative_error <= bound(trial) && identical;
  }
  static double bound(const Trial& trial);
  std::string text() const;
};

/// Collective: 100 steps on all ranks, and the same on each rank alone to compare. size() divides 24.
Outcome compare_with_one_process(const Group& group, const Trial& trial);

}  // namespace lockstep::test
