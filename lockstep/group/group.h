// A Group is a set of ranks that call collectives together. It is a value: copies are the same group, and the
// last copy's end says goodbye to the others.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/reduce_op.h"
#include "lockstep/execute/work.h"
#include "lockstep/memory/arena_block.h"
#include "lockstep/memory/registered_memory.h"

namespace lockstep {

namespace trace {
class Recorder;
}

struct GroupOptions {
  /// A collective for which some rank is missing so long fails with `timeout`, naming who is missing.
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
  /// A warning names who is missing after this time.
  std::chrono::nanoseconds warn_after = std::chrono::seconds(30);

  /// LOCKSTEP_TIMEOUT and LOCKSTEP_WARN_AFTER ("90s", "500ms", "off") over the defaults.
  static GroupOptions from_environment();
};

/// Memory in this rank's arena, where collectives inside a host need no copy. Move-only; outlives its group.
template <class T>
class ArenaBuffer {
 public:
  ArenaBuffer() = default;
  explicit ArenaBuffer(ArenaBlock block) : block_(std::move(block)) {}
  std::span<T> span() const {
    const auto bytes = block_.bytes();
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  T* data() const { return span().data(); }
  std::size_t size() const { return span().size(); }
  T* begin() const { return data(); }
  T* end() const { return data() + size(); }
  T& operator[](std::size_t index) const { return data()[index]; }

 private:
  ArenaBlock block_;
};

/// Time that this process spent on collectives' own work (copying and reducing), in any thread. The rest of
/// the time in wait() was spent waiting for others.
struct ProgressTimes {
  std::chrono::nanoseconds own_work{0};
};

/// Thread safety: several threads may use one group, but all ranks must submit its collectives in the same
/// order.
class Group {
 public:
  class Impl;

  /// A world of one: collectives are no-ops.
  Group();
  explicit Group(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  int rank() const;
  int size() const;
  /// Among the group's ranks on this host.
  int local_rank() const;
  int local_size() const;
  /// The rank in the world of a rank of this group; where ranks may die and come back, what their launcher calls it.
  int world_rank(int rank) const;
  /// As in messages: "world"; "world/0,2" for a subgroup of these ranks, "world/0,2#2" for the second one.
  const std::string& name() const;

  /// A group of these ranks of this one, in this order. Collective over the ranks listed, and over them
  /// alone; they all make their common groups in the same order. Throws invalid_argument unless each is a
  /// rank, none twice, and this rank is among them.
  Group subgroup(std::span<const int> ranks) const;

  /// Parts this group: ranks of one colour become a group, in the order of their keys, of equal ones in that
  /// of their ranks here. Collective over all ranks; one without a colour is in no group afterwards.
  std::optional<Group> split(std::optional<int> colour, int key = 0) const;

  /// `elements` of arena memory, aligned to 64 bytes; in a group of one ordinary memory. Not collective. All groups of one world use a
  /// rank's one arena, so that their collectives reach this memory, too. Throws invalid_argument where there is no room for so many.
  template <Movable T>
  ArenaBuffer<T> allocate(std::size_t elements) const {
    if (elements > most_allocated_bytes / sizeof(T)) throw_too_many(elements, sizeof(T));
    return ArenaBuffer<T>(allocate_bytes(elements * sizeof(T)));
  }
  ArenaBlock allocate_bytes(std::size_t bytes) const;

  /// Memory that the program has from elsewhere is reached by the other ranks of this host as if it came from allocate(), as long as
  /// the result lives: its pages are replaced by some of this rank's arena, at the same place, with what is in them. Not collective:
  /// ranks may register what they like, and a call is as quick as the slowest of its buffers. No thread may write to `memory` meanwhile.
  /// Memory that is freed or moved while it is registered is noticed by the next call, and is then memory as any other; a process
  /// that is forked has a copy. Not for what a driver has pinned (cudaHostRegister). Throws Error:
  /// invalid_argument (nothing; memory that is not private and writable, or is registered already; no room in the arena), system.
  /// Cost: two copies, and as much memory again meanwhile; a call pays about a microsecond for each registered buffer of 32 KiB or
  /// more, and takes smaller ones as any other. Linux before 6.11 tells private memory from a file's, but not one file from another.
  template <class T>
  [[nodiscard]] RegisteredMemory register_memory(std::span<T> memory) const {
    return register_bytes(std::as_writable_bytes(memory));
  }
  RegisteredMemory register_bytes(std::span<std::byte> bytes) const;

  /// Closes the group, where this rank cannot go on: the others' calls, those under way too, fail with
  /// peer_lost, which names this rank and the reason ("rank 1 gave up: REASON"), at once and not at a
  /// deadline, and so do later ones of this rank. Not collective. A group that has failed keeps its first
  /// cause; in a group of one nobody waits, and nothing happens.
  void abort(const std::string& reason) const noexcept;
  /// The same because of an exception. Where it is an Error that says that a rank was lost, or missing, such as another group's
  /// failure, these ranks' errors have its code and peer, too; else it is abort(why.what()).
  void abort(const std::exception& why) const noexcept;

  /// Moves everything that is under way on, without waiting. Cheap when there is nothing.
  void poll() const;
  ProgressTimes progress_times() const;
  /// This rank's record: trace/recorder.h.
  trace::Recorder& recorder() const;

  Impl& impl() const { return *impl_; }
  const std::shared_ptr<Impl>& shared_impl() const { return impl_; }

 private:
  static constexpr std::size_t most_allocated_bytes = SIZE_MAX / 2;
  [[noreturn]] static void throw_too_many(std::size_t elements, std::size_t bytes_of_each);

  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep
