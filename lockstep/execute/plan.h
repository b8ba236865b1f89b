// A plan is a schedule together with the choice behind it. Plans are made once per kind of call and kept,
// because a training step calls the same few things over and over.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <utility>

#include "lockstep/base/signature.h"
#include "lockstep/schedule/select.h"

namespace lockstep {

struct Plan {
  const AlgorithmEntry* choice = nullptr;
  Schedule schedule;
  std::size_t slot_bytes = 0;       ///< the most that a rank puts into its slot, where the plan uses them
  std::size_t window_elements = 0;  ///< of staging memory, as the schedule's Call had it
  BufferClass buffers = BufferClass::private_memory;
  Dtype wire_dtype = Dtype::bf16;  ///< of what crosses between hosts, where the call has a narrow wire
};

/// For one rank of one group. Not thread safe.
class PlanCache {
 public:
  /// `staging_bytes`: how much staging memory there is; 0 where there is none.
  PlanCache(const Neighbourhood& where, Tuning tuning, std::size_t staging_bytes);

  // A call comes as its rank knows it, with the signature that the others see; what the group knows about it is
  // filled in here: whose memory the buffers are, nodes of memory, and how long messages and pieces are.
  /// The plan for a call. The reference is good until the next call here.
  const std::shared_ptr<const Plan>& find(const Call& call, const Signature& signature,
                                          std::size_t element_bytes, BufferClass buffers);
  /// The plan if the call takes the slots, which every rank can tell before it knows the others' buffers;
  /// null otherwise.
  const std::shared_ptr<const Plan>& find_one_shot(const Call& call, const Signature& signature,
                                                   std::size_t element_bytes);
  /// How much staging memory plans use.
  std::size_t staging_bytes() const { return staging_bytes_; }

 private:
  static constexpr std::size_t capacity = 4096;
  /// 0 for reductions of halves, which inside a host are rounded once: nodes would round their sums.
  int ranks_per_node(const Signature& signature) const;
  /// Whether what it sends to other hosts crosses in Tuning::wire_dtype.
  bool has_narrow_wire(const Call& call, const Signature& signature) const;
  std::size_t window_elements(std::size_t element_bytes) const;
  /// What find() fills in of the call alone; the rest is `call`'s.
  Call complete(const Call& call, std::size_t element_bytes, BufferClass buffers) const;

  Neighbourhood where_;
  Tuning tuning_;
  std::size_t staging_bytes_;
  std::map<std::pair<Call, std::size_t>, std::shared_ptr<const Plan>>
      plans_;  // by call and bytes of an element
  // The last few calls, found without walking the map.
  struct Recent {
    Call call;  ///< complete
    std::size_t element_bytes = 0;
    std::shared_ptr<const Plan> plan;
  };
  std::array<Recent, 8> recent_;
};

}  // namespace lockstep
