#include "lockstep/execute/plan.h"

#include <algorithm>

#include "lockstep/schedule/staging_ring.h"

namespace lockstep {

PlanCache::PlanCache(int rank, int ranks, const Neighbourhood& where, Tuning tuning,
                     std::size_t staging_bytes)
    : rank_(rank),
      ranks_(ranks),
      where_(where),
      tuning_(std::move(tuning)),
      staging_bytes_(std::min<std::size_t>(staging_bytes, tuning_.staging_bytes)) {}

int PlanCache::ranks_per_node(const Signature& signature) const {
  if (where_.ranks_per_node == 0) return 0;
  return reduces(signature.operation) && is_half(signature.dtype) ? 0 : where_.ranks_per_node;
}

Call PlanCache::call_of(const Signature& signature, std::size_t element_bytes, const BlockCounts& counts,
                        BufferClass buffers) const {
  return {.operation = signature.operation,
          .elements = counts.counts.empty() ? signature.elements : 0,
          .rank = rank_,
          .ranks = ranks_,
          .root = signature.root,
          .buffers = buffers,
          .in_place = (signature.flags & Signature::is_in_place) != 0,
          .ranks_per_node = ranks_per_node(signature),
          .keeps_order = signature.reduce_op == ReduceOp::custom,
          .counts = counts.counts,
          .receive_counts = counts.received,
          .segment_elements = std::max<std::size_t>(1, tuning_.segment_bytes / element_bytes),
          .window_elements = StagingRing(staging_bytes_).piece_bytes() / element_bytes,
          .windows = SIZE_MAX};
}

const std::shared_ptr<const Plan>& PlanCache::find_one_shot(const Signature& signature,
                                                            std::size_t element_bytes,
                                                            const BlockCounts& counts) {
  static const std::shared_ptr<const Plan> none;
  // Only what select() would say, too; the elements of the v forms are those of all blocks.
  const bool is_too_large = counts.counts.empty() && signature.elements > where_.slot_bytes / element_bytes;
  if (!where_.one_host || is_too_large) return none;
  const auto& plan = find(signature, element_bytes, counts, BufferClass::private_memory);
  return plan->choice->requirement == Requirement::slots ? plan : none;
}

const std::shared_ptr<const Plan>& PlanCache::find(const Signature& signature, std::size_t element_bytes,
                                                   const BlockCounts& counts, BufferClass buffers) {
  Recent& recent =
      recent_[(signature.elements + static_cast<std::size_t>(signature.operation)) % recent_.size()];
  const bool is_custom = signature.reduce_op == ReduceOp::custom;
  const auto in_place = [](const Signature& one) { return (one.flags & Signature::is_in_place) != 0; };
  if (recent.plan && recent.signature.operation == signature.operation &&
      recent.signature.elements == signature.elements && recent.signature.root == signature.root &&
      recent.element_bytes == element_bytes && recent.buffers == buffers &&
      in_place(recent.signature) == in_place(signature) &&
      (recent.signature.reduce_op == ReduceOp::custom) == is_custom &&
      ranks_per_node(recent.signature) == ranks_per_node(signature) && recent.counts == counts) {
    return recent.plan;
  }
  const Key key{
      signature.operation, signature.elements,        element_bytes, signature.root, in_place(signature),
      is_custom,           ranks_per_node(signature), buffers,       counts};
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    const Call call = call_of(signature, element_bytes, counts, buffers);
    const AlgorithmEntry& choice = select(call, element_bytes, where_, tuning_);
    if (plans_.size() >= capacity) plans_.clear();
    found =
        plans_
            .emplace(key, std::make_shared<const Plan>(Plan{.choice = &choice,
                                                            .schedule = choice.algorithm(call),
                                                            .slot_bytes = slot_elements(call) * element_bytes,
                                                            .window_elements = call.window_elements}))
            .first;
  }
  recent = {signature, element_bytes, buffers, counts, found->second};
  return recent.plan;
}

}  // namespace lockstep
