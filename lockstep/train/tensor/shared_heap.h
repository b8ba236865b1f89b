// libtorch's tensors in shared memory: while a SharedHeap lives, what this process allocates for tensors on
// the CPU lies in the group's arena. Gradients are born there, so that other ranks read them where they are,
// without a copy; and memory is used again instead of being given back to the system, whose pages would have
// to be cleared at every step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "lockstep/group/group.h"

namespace lockstep {

struct SharedHeapOptions {
  /// The most that it keeps for later allocations, beyond what tensors use. More goes back to the arena.
  std::size_t most_spare_bytes = std::size_t{4} << 30;
};

struct SharedHeapStatistics {
  std::uint64_t used_bytes = 0;   ///< by tensors, rounded up to what the heap hands out
  std::uint64_t spare_bytes = 0;  ///< kept for later ones
  std::uint64_t peak_bytes = 0;   ///< the most that both were together
  std::uint64_t allocations = 0;
  std::uint64_t reused = 0;  ///< of these, from what was spare
};

/// One at a time in a process. Tensors that outlive it, or the group, stay valid. Thread safe. After a
/// failure in the middle of a collective libtorch's former allocator serves, since a rank that was stopped
/// may still write to this memory. Cost: an allocation is a lookup under a mutex; blocks are at most a
/// quarter larger than what was asked for, and 64 bytes. They have memory from the start: an empty tensor of
/// gigabytes takes as much, also before anything is written to it.
class SharedHeap {
 public:
  /// Throws Error{invalid_argument} if there is one already.
  explicit SharedHeap(const Group& group, const SharedHeapOptions& options = {});
  /// Null if there is one already.
  static std::unique_ptr<SharedHeap> unless_there_is_one(const Group& group,
                                                         const SharedHeapOptions& options = {});
  /// What is allocated from now on comes from where it came from before. Spare memory goes back.
  ~SharedHeap();
  SharedHeap(const SharedHeap&) = delete;
  SharedHeap& operator=(const SharedHeap&) = delete;

  /// What is allocated from now on lies in the arena of `group`, of which this process is a rank: the next world's, say, after a
  /// failure of the one before. Tensors that are there stay valid where they are, and are counted no more; gradients are born anew
  /// with the next step (zero_grad's set_to_none), and are as quick to reduce as before.
  void move_to(const Group& group);

  SharedHeapStatistics statistics() const;

 private:
  SharedHeap() = default;
};

}  // namespace lockstep
