// What carries out a group's calls: our own engine over shared memory and sockets, with MPI between hosts if that was chosen.
// Calls on GPUs' memory go beside it (gpu/).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/custom_reduction.h"
#include "lockstep/base/error.h"
#include "lockstep/base/memory_place.h"
#include "lockstep/base/signature.h"
#include "lockstep/execute/message.h"
#include "lockstep/execute/work.h"
#include "lockstep/memory/arena_block.h"
#include "lockstep/memory/control_page.h"
#include "lockstep/memory/registered_memory.h"
#include "lockstep/schedule/call.h"

namespace lockstep {

class Arena;
class HostRegion;
struct GpuUpdate;

/// What is called, by whom, with which buffers. It was checked: the buffers have the sizes that the call says.
struct Request {
  Signature signature;  ///< what the others see; without the buffers' places, which the backend finds out
  Call call = {};       ///< of a collective, as far as its rank knows it: PlanCache fills in the rest
  std::size_t element_bytes = 1;
  /// In place both are the same buffer, or one a part of the other (see in_place_offset in call.h).
  std::span<const std::byte> input = {};
  std::span<std::byte> output = {};
  std::shared_ptr<const CustomReduction> custom = nullptr;  ///< of ReduceOp::custom
  int peer = 0;                  ///< send: the destination; receive: the source or any_source
  int tag = 0;                   ///< of a message, or any_tag
  Received* received = nullptr;  ///< receive: filled in if given
  MemoryPlace place = {};        ///< of both buffers
  /// ReduceOp::average: what the sum is divided by in the end, the same in all calls of a group; 0: the number of its ranks.
  int averaged = 0;
  /// Of an all_reduce on a GPU that ranks share: its sum moves `output`, which are parameters (gpu/gpu_update.h). Until it is submitted.
  const GpuUpdate* update = nullptr;
};

/// What a sum of a group of `ranks` is divided by in the end.
inline double divisor_of(const Request& request, int ranks) {
  if (request.signature.reduce_op != ReduceOp::average) return 1.0;
  return static_cast<double>(request.averaged > 0 ? request.averaged : ranks);
}

/// What a group's ranks on this host share, and the arena of this one in it; null where there are none.
struct HostMemory {
  std::shared_ptr<HostRegion> region = nullptr;
  std::shared_ptr<Arena> arena = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;
  /// Begins the call. Throws the group's failure if it has failed before.
  virtual std::unique_ptr<PendingWork> submit(const Request& request) = 0;
  virtual void poll() = 0;
  /// Why the group has failed, as far as is known here. Looks for news of the others first, which a call does
  /// only while it waits.
  /// `needs_all`: calls that are not this backend's wait for all ranks, so one that has left has failed them.
  virtual std::optional<FirstCause::Cause> failure(bool needs_all = false) = 0;
  /// Fails the group, unless it has failed, and tells the others why, on this host and on others.
  virtual void fail(const Error& cause) = 0;
  /// Fails the group, unless it has failed, and names this rank.
  virtual void abort(const std::string& reason) = 0;
  virtual std::uint64_t own_work_ns() const = 0;
  virtual ArenaBlock allocate(std::size_t bytes) = 0;
  /// As Arena::register_memory(), where the rank has one.
  virtual RegisteredMemory register_memory(std::span<std::byte> bytes) = 0;
  /// Of a group that has failed: what is freed there is not used again before all ranks of the host have let go of the group, so may write
  /// there no more. `bytes`: in this rank's arena, or elsewhere.
  virtual void keep_from_reuse(std::span<const std::byte> bytes) = 0;
  /// The memory that all ranks of the group reach, in which each has the number that it has in the group;
  /// null where there is none.
  virtual std::shared_ptr<HostRegion> shared_region() const = 0;
  /// For groups that are made of this one.
  virtual HostMemory host_memory() const = 0;
  /// Says goodbye to the group's other ranks: of a world before it goes, of others with the last of their works.
  virtual void leave() = 0;
  /// Ends the group for this rank: its calls, those under way too, throw Error{aborted} with `reason`. The others are not told.
  virtual void close(const std::string& reason) = 0;
};

}  // namespace lockstep
