#include "lockstep/execute/plan.h"

#include <algorithm>

#include "lockstep/schedule/staging_ring.h"

namespace lockstep {
namespace {

// Shorter sums are over as soon in full width, and may be what a program wants exactly: a loss, a count.
constexpr std::size_t least_narrow_bytes = std::size_t{16} << 10;

/// Whether `complete` is `call`, but for what PlanCache fills in.
bool is_same(const Call& complete, const Call& call) {
  return complete.operation == call.operation && complete.elements == call.elements &&
         complete.root == call.root && complete.in_place == call.in_place &&
         complete.keeps_order == call.keeps_order && complete.counts == call.counts &&
         complete.receive_counts == call.receive_counts;
}

}  // namespace

PlanCache::PlanCache(const Neighbourhood& where, Tuning tuning, std::size_t staging_bytes)
    : where_(where),
      tuning_(std::move(tuning)),
      staging_bytes_(std::min<std::size_t>(staging_bytes, tuning_.staging_bytes)) {}

int PlanCache::ranks_per_node(const Signature& signature) const {
  if (where_.ranks_per_node == 0) return 0;
  return reduces(signature.operation) && is_half(signature.dtype) ? 0 : where_.ranks_per_node;
}

bool PlanCache::has_narrow_wire(const Call& call, const Signature& signature) const {
  if (!tuning_.wire_dtype || where_.is_one_host()) return false;
  const bool is_sum = signature.reduce_op == ReduceOp::sum || signature.reduce_op == ReduceOp::average;
  return reduces(signature.operation) && is_sum && signature.dtype == Dtype::f32 &&
         schedule::input_elements(call) * sizeof(float) >= least_narrow_bytes &&
         window_elements(sizeof(float)) >= static_cast<std::size_t>(call.ranks);
}

std::size_t PlanCache::window_elements(std::size_t element_bytes) const {
  return StagingRing(staging_bytes_).piece_bytes() / element_bytes;
}

Call PlanCache::complete(const Call& call, std::size_t element_bytes, BufferClass buffers) const {
  Call all = call;
  all.buffers = buffers;
  all.host_of = where_.host_of;
  all.segment_elements = std::max<std::size_t>(1, tuning_.segment_bytes / element_bytes);
  all.window_elements = window_elements(element_bytes);
  all.windows = SIZE_MAX;
  return all;
}

const std::shared_ptr<const Plan>& PlanCache::find_one_shot(const Call& call, const Signature& signature,
                                                            std::size_t element_bytes) {
  static const std::shared_ptr<const Plan> none;
  // Only what select() would say, too; the v forms have no elements here.
  if (!where_.is_one_host() || call.elements > where_.slot_bytes / element_bytes) return none;
  const auto& plan = find(call, signature, element_bytes, BufferClass::private_memory);
  return plan->choice->requirement == Requirement::slots ? plan : none;
}

const std::shared_ptr<const Plan>& PlanCache::find(const Call& call, const Signature& signature,
                                                   std::size_t element_bytes, BufferClass buffers) {
  Recent& recent = recent_[(signature.elements + static_cast<std::size_t>(call.operation)) % recent_.size()];
  const int nodes = ranks_per_node(signature);
  const bool is_narrow = has_narrow_wire(call, signature);
  if (recent.plan && recent.element_bytes == element_bytes && recent.call.buffers == buffers &&
      recent.call.ranks_per_node == nodes && recent.call.narrow_wire == is_narrow &&
      is_same(recent.call, call)) {
    return recent.plan;
  }
  std::pair key{complete(call, element_bytes, buffers), element_bytes};
  key.first.ranks_per_node = nodes;
  key.first.narrow_wire = is_narrow;
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    const Call& all = key.first;
    const AlgorithmEntry& choice = schedule::select(all, element_bytes, where_, tuning_);
    if (plans_.size() >= capacity) plans_.clear();
    found = plans_
                .emplace(key, std::make_shared<const Plan>(
                                  Plan{.choice = &choice,
                                       .schedule = choice.algorithm(all),
                                       .slot_bytes = schedule::slot_elements(all) * element_bytes,
                                       .window_elements = all.window_elements,
                                       .buffers = buffers,
                                       .wire_dtype = tuning_.wire_dtype.value_or(Dtype::bf16)}))
                .first;
  }
  recent = {std::move(key.first), element_bytes, found->second};
  return recent.plan;
}

}  // namespace lockstep
