// A plan is a schedule together with the choice behind it. Plans are made once per kind of call and kept,
// because a training step calls the same few things over and over.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "lockstep/base/signature.h"
#include "lockstep/schedule/select.h"

namespace lockstep {

struct Plan {
  const AlgorithmEntry* choice = nullptr;
  Schedule schedule;
  std::size_t slot_bytes = 0;       ///< the most that a rank puts into its slot, where the plan uses them
  std::size_t window_elements = 0;  ///< of staging memory, as the schedule's Call had it
};

/// The v forms: elements of each rank's block; empty otherwise. As in Call.
struct BlockCounts {
  std::vector<std::size_t> counts = {};
  std::vector<std::size_t> received = {};  ///< all_to_all only
  friend bool operator==(const BlockCounts&, const BlockCounts&) = default;
  friend bool operator<(const BlockCounts& a, const BlockCounts& b) {
    return std::tie(a.counts, a.received) < std::tie(b.counts, b.received);
  }
};

/// For one rank of one group. Not thread safe.
class PlanCache {
 public:
  /// `staging_bytes`: how much staging memory there is; 0 where there is none.
  PlanCache(int rank, int ranks, const Neighbourhood& where, Tuning tuning, std::size_t staging_bytes);

  /// The plan for a call. The reference is good until the next call here.
  const std::shared_ptr<const Plan>& find(const Signature& signature, std::size_t element_bytes,
                                          const BlockCounts& counts, BufferClass buffers);
  /// The plan if the call takes the slots, which every rank can tell before it knows the others' buffers;
  /// null otherwise.
  const std::shared_ptr<const Plan>& find_one_shot(const Signature& signature, std::size_t element_bytes,
                                                   const BlockCounts& counts);
  /// The staging memory that is used.
  std::size_t staging_bytes() const { return staging_bytes_; }

 private:
  using Key =
      std::tuple<Operation, std::uint64_t, std::size_t, int, bool, bool, int, BufferClass, BlockCounts>;
  static constexpr std::size_t capacity = 4096;
  /// 0 for reductions of halves, which inside a host are rounded once: nodes would round their sums.
  int ranks_per_node(const Signature& signature) const;
  Call call_of(const Signature& signature, std::size_t element_bytes, const BlockCounts& counts,
               BufferClass buffers) const;

  int rank_;
  int ranks_;
  Neighbourhood where_;
  Tuning tuning_;
  std::size_t staging_bytes_;
  std::map<Key, std::shared_ptr<const Plan>> plans_;
  // The last few calls, found without walking the map.
  struct Recent {
    Signature signature;
    std::size_t element_bytes = 0;
    BufferClass buffers = BufferClass::private_memory;
    BlockCounts counts;
    std::shared_ptr<const Plan> plan;
  };
  std::array<Recent, 8> recent_;
};

}  // namespace lockstep
