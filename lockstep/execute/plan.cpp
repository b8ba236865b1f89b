#include "lockstep/execute/plan.h"

#include <algorithm>

namespace lockstep {

PlanCache::PlanCache(int rank, int ranks, const Neighbourhood& where, const Tuning& tuning)
    : rank_(rank), ranks_(ranks), where_(where), tuning_(tuning) {}

Call PlanCache::call_of(const Signature& signature, BufferClass buffers, int destination) const {
  return {.operation = signature.operation,
          .elements = signature.elements,
          .rank = rank_,
          .ranks = ranks_,
          .root = signature.root,
          .destination = destination,
          .buffers = buffers,
          .segment_elements = std::max<std::size_t>(1, tuning_.segment_bytes / size_of(signature.dtype))};
}

bool PlanCache::is_one_shot(const Signature& signature) const {
  return lockstep::is_one_shot(call_of(signature, BufferClass::private_memory, 0), size_of(signature.dtype),
                               where_, tuning_);
}

std::shared_ptr<const Plan> PlanCache::find(const Signature& signature, BufferClass buffers,
                                            int destination) {
  const std::size_t element_bytes = size_of(signature.dtype);
  const Key key{signature.operation, signature.elements, element_bytes, signature.root, destination, buffers};
  Recent& recent =
      recent_[(signature.elements + static_cast<std::size_t>(signature.operation)) % recent_.size()];
  if (recent.plan && recent.key == key) return recent.plan;
  auto& plan = plans_[key];
  if (!plan) {
    const Call call = call_of(signature, buffers, destination);
    const Choice choice = select(call, element_bytes, where_, tuning_);
    auto made = std::make_shared<const Plan>(Plan{choice, choice.algorithm(call)});
    if (plans_.size() > capacity) plans_.clear();
    plans_[key] = made;
    recent = {key, made};
    return made;
  }
  recent = {key, plan};
  return plan;
}

}  // namespace lockstep
