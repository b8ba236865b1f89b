// Calls of ranks that share one GPU, where NCCL cannot be: by kernels that read and write all ranks' device arenas (kernel.h). What
// lies there already goes without a copy; other buffers go through it.
//
//   program's stream   [input -> arena][kernel: arrives, or does it for all]     (wait(): waits for this rank's flag)
//   end stream         (of calls whose output is copied)         [waits for the flag][arena -> output]--mark
//
// The kernel goes to the program's own stream because it never waits. A process whose streams wait keeps the GPU from the others for
// whole time slices, 2 ms, so no more of them wait than have to (docs/decisions/0038).
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/device_arena/device_arena.h"
#include "lockstep/backend/device_arena/kernel_image.h"
#include "lockstep/backend/gpu/gpu_engine.h"
#include "lockstep/memory/host_region.h"

namespace lockstep::device_arena {

/// Why this rank cannot be one of `ranks` of a host that share a GPU; empty: it can. `share_memory`: they have a HostRegion.
std::string why_not(int ranks, bool share_memory);

class Engine final : public GpuEngine {
 public:
  /// Connects; collective. REQUIRES: why_not() of all ranks is empty, and their GPU is the same. Throws Error: system (what CUDA
  /// says), timeout and peer_lost naming ranks that do not come.
  Engine(Options options, Deadline deadline);
  ~Engine() override;

  /// `bytes` on the GPU that calls take without a copy, until the block is gone. Throws as DeviceArena::allocate().
  std::shared_ptr<Block> allocate(std::size_t bytes);
  /// Whether calls take it without a copy.
  bool reaches(std::span<const std::byte> on_gpu) const {
    return arena_->find(on_gpu.data(), on_gpu.size()).has_value();
  }

  const char* name() const override { return "device_arena"; }
  void require_possible(const Request& request) const override;
  std::size_t messages_at_once() const override { return message_slots_of(options_.members.size()); }
  bool can_be_captured() const override { return false; }
  Placed put(std::span<const Request> requests, cuda::Stream stream, bool is_captured) override;
  /// A collective that ends what others have begun, when those are over here: the same on all ranks, in an order of their own, beside put().
  /// `stream`: not the program's. REQUIRES: its buffers lie in the arena, for a copy out of it could wait for calls that wait for this one.
  std::unique_ptr<GpuCall> put_behind(const Request& request, cuda::Stream stream);
  State look() override;
  std::chrono::nanoseconds looks_when_idle() const override { return std::chrono::milliseconds(5); }
  void abort() noexcept override;
  void end(Deadline deadline, const std::function<bool()>& gives_up) override;
  void tell_waiting(std::uint64_t, const Signature&) override {}
  void tell_through(std::uint64_t) override {}
  std::vector<int> missing_in(std::uint64_t number, const Signature& called) override;
  std::string advice() const override {
    return "kernels of the programs' own, which come before it on their streams, may still run";
  }

 private:
  /// Calls of one kind, which are counted for themselves: all collectives, or the messages from one rank to another.
  struct Lane {
    std::size_t first_slot = 0;
    std::uint64_t slots = 1;
    std::vector<int> ranks;  ///< who takes part
    std::vector<std::uint64_t> next =
        std::vector<std::uint64_t>(ranks.size());  ///< of each party: its next call
    std::size_t slot_of(std::uint64_t number) const { return first_slot + number % slots; }
  };
  struct Buffers;
  class ArenaCall;

  std::span<std::byte> find_page(Deadline deadline);
  void connect(Deadline deadline);
  void meet(Deadline deadline);
  void await(const std::function<bool(int rank)>& has_come, const std::string& what, Deadline deadline) const;
  void require_own_stream(const Signature& called, cuda::Stream stream);
  Lane& lane_of(const Request& request);
  int party_of(const Request& request) const;
  void put_one(const Request& request, Lane& lane, ArenaCall& call);
  void await_slot(const Lane& lane, int party, std::uint64_t number);
  void tell(const Request& request, const Lane& lane, int party, std::uint64_t number);
  void require_same(const Notice& other, int other_rank, const Signature& called, std::uint64_t number) const;
  Buffers place_buffers(const Request& request);
  Buffers place_update(const Request& request) const;
  void launch(const Request& request, const Lane& lane, int party, std::uint64_t number, Buffers buffers,
              ArenaCall& call);
  unsigned blocks_for(const Request& request) const;
  void drain() noexcept;
  void release(bool is_page_free) noexcept;

  const Options options_;
  const cuda::SharingDriver& sharing_;
  ArenaBlock page_block_;            // of the group's first rank
  std::vector<std::byte> own_page_;  // in a group of one
  SharedPage page_;
  cuda::Address page_address_ = 0;  // for the GPU
  bool has_registered_ = false;
  std::shared_ptr<Kernels> kernels_;
  cuda::Stream end_stream_ = nullptr;
  std::shared_ptr<GpuEvents> events_;
  cuda::Event health_ = nullptr;            // to ask the GPU how it is
  std::optional<cuda::Stream> own_stream_;  // of the program's: the last that was found to be the GPU's
  std::shared_ptr<DeviceArena> arena_;
  std::shared_ptr<Block> boards_block_;  // of the group's first rank
  cuda::Address boards_ = 0;
  std::vector<Lane> lanes_;  // collectives, those behind others, then from each rank to each
  std::mutex mutex_;         // of what is put, and of what follows
  bool is_aborted_ = false;
};

}  // namespace lockstep::device_arena
