// A schedule as a simulation goes through it: 12 bytes a step, so that those of thousands of ranks fit into memory. One
// rank's is made at a time, packed, and let go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "lockstep/schedule/schedule.h"

namespace lockstep::schedule {

/// What many steps have in common.
struct StepShape {
  StepKind kind = StepKind::copy;
  std::uint16_t sources = 0, destinations = 0;
  std::size_t elements = 0;
  friend bool operator==(const StepShape&, const StepShape&) = default;
};

inline constexpr std::uint32_t no_request = UINT32_MAX;

struct PackedStep {
  std::uint32_t shape = 0;   ///< an index of StepShapes
  std::uint32_t target = 0;  ///< send, receive: the peer. arrive, await: the stage
  /// send, receive, wait: number of the message among those of its rank that are under way; one that was waited for
  /// leaves its number to a later one.
  std::uint32_t request = 0;
};

struct PackedSchedule {
  std::vector<PackedStep> steps;
  std::uint32_t requests = 0;  ///< the most that are under way at once
};

/// The shapes of all ranks' steps, each once.
class StepShapes {
 public:
  const StepShape& operator[](std::uint32_t index) const { return shapes_[index]; }
  /// REQUIRES: no exchange among the steps.
  PackedSchedule pack(const Schedule& schedule);

 private:
  struct Hash {
    std::size_t operator()(const StepShape& shape) const;
  };
  std::uint32_t index_of(const StepShape& shape);

  std::vector<StepShape> shapes_;
  std::unordered_map<StepShape, std::uint32_t, Hash> indices_;
};

}  // namespace lockstep::schedule
