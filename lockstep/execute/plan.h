// A plan is a schedule together with the choice behind it. Plans are made once per kind of call and kept,
// because a training step calls the same few things over and over.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <tuple>

#include "lockstep/base/signature.h"
#include "lockstep/schedule/select.h"

namespace lockstep {

struct Plan {
  Choice choice;
  Schedule schedule;
};

/// For one rank of one group. Not thread safe.
class PlanCache {
 public:
  PlanCache(int rank, int ranks, const Neighbourhood& where, const Tuning& tuning);

  /// The plan for a call; `buffers` is only looked at where the call is not one_shot. `destination`: of a
  /// message. The reference stays until the cache has made `capacity` other plans.
  std::shared_ptr<const Plan> find(const Signature& signature, BufferClass buffers, int destination);
  bool is_one_shot(const Signature& signature) const;

 private:
  using Key = std::tuple<Operation, std::uint64_t, std::size_t, int, int, BufferClass>;
  static constexpr std::size_t capacity = 4096;
  Call call_of(const Signature& signature, BufferClass buffers, int destination) const;

  int rank_;
  int ranks_;
  Neighbourhood where_;
  Tuning tuning_;
  std::map<Key, std::shared_ptr<const Plan>> plans_;
  // The last few calls, found without walking the map.
  struct Recent {
    Key key{};
    std::shared_ptr<const Plan> plan;
  };
  std::array<Recent, 8> recent_;
};

}  // namespace lockstep
