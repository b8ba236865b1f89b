#include "lockstep/train/data_parallel.h"

#include "lockstep/train/replicas.h"

namespace lockstep {

std::shared_ptr<GradientHooks> synchronise(const torch::nn::Module& module, const Group& group,
                                           const DataParallelOptions& options,
                                           const DataParallelSeams& seams) {
  const auto tensors = tensors_of(module);
  auto facts = facts_of(tensors);
  facts.push_back({"option first_bucket_bytes", std::to_string(options.first_bucket_bytes)});
  facts.push_back({"option bucket_cap_bytes", std::to_string(options.bucket_cap_bytes)});
  require_same_facts(group, facts, "Build the same model, with the same options, on every rank");
  for (const auto& item : tensors) require_averageable(item);
  if (group.size() == 1) return nullptr;
  if (seams.broadcast) broadcast_tensors(group, tensors);
  const BucketLimits limits{.first_bytes = options.first_bucket_bytes, .cap_bytes = options.bucket_cap_bytes};
  auto reducer = std::make_unique<Reducer>(group, distinct_parameters(tensors, true), limits, seams.reduce);
  return GradientHooks::attach(std::move(reducer), {.frozen = distinct_parameters(tensors, false),
                                                    .copy_over_gradients = seams.copy_over_gradients});
}

}  // namespace lockstep
