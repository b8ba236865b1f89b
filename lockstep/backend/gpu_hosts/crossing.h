// The way of one request between hosts, by steps that the host takes when the ones before are through, so that no stream waits:
//
//   SumOfHosts, an all_reduce:     [reduce_scatter on the GPU] down [all_reduce of slices between hosts] up [all_gather on the GPU]
//                                                              down [       ..., piece by piece       ] up
//   WholeRequest, anything else:   down [the same in main memory, by all ranks] up
//
// `down` and `up` are copies between the GPU and page-locked memory, each on a stream of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/device_arena/arena_engine.h"
#include "lockstep/backend/gpu/gpu_engine.h"
#include "lockstep/backend/gpu_hosts/pinned_memory.h"
#include "lockstep/execute/work.h"
#include "lockstep/memory/gpu.h"
#include "lockstep/transport/members.h"

namespace lockstep::gpu_hosts {

/// What the crossings of an engine share.
struct Road {
  std::shared_ptr<Gpu> gpu;
  std::shared_ptr<GpuEvents> events;
  std::shared_ptr<PinnedMemory> pinned;
  cuda::Stream down = nullptr, up = nullptr;
  device_arena::Engine* on_host = nullptr;  ///< of this host's ranks; null where each host has one
  Members here;                             ///< of `on_host`
  std::shared_ptr<Backend> all;             ///< of the group's ranks, for these calls alone
  std::shared_ptr<Backend> peers;           ///< of those that have this rank's slice; null: it has none
  Call of_peers;                            ///< rank and ranks of `peers`
  int slices = 1;               ///< of an all_reduce: as many as the host with the fewest ranks has
  std::size_t piece_bytes = 0;  ///< of a slice, that cross at once
  bool is_by_mpi = false;       ///< which may write to memory of calls that were given up
};

/// Where a stream was. REQUIRES a Gpu::Current.
class StreamMark {
 public:
  StreamMark(std::shared_ptr<GpuEvents> events, const Gpu& gpu)
      : events_(std::move(events)), gpu_(gpu), event_(events_->take()) {}
  ~StreamMark() { events_->put_back(event_); }
  StreamMark(const StreamMark&) = delete;
  StreamMark& operator=(const StreamMark&) = delete;

  cuda::Event event() const { return event_; }
  void set(cuda::Stream stream);
  /// REQUIRES: it was set. Throws Error{system}: the GPU has failed.
  bool is_reached();

 private:
  const std::shared_ptr<GpuEvents> events_;
  const Gpu& gpu_;
  const cuda::Event event_;
  bool is_reached_ = false;
};

/// What a crossing may do, besides waiting: ranks take these steps in the order of their calls.
struct Turn {
  bool crosses = true;  ///< whether those before it have begun their calls in main memory
  bool spreads = true;  ///< and theirs that end on the GPU
};

enum class Advance { waits, moved, is_over };

/// Made by the program's thread, whose calls of CUDA may wait for the GPU; all else by one thread at a time, whose calls do not.
/// REQUIRES of all: a Gpu::Current.
class Crossing {
 public:
  virtual ~Crossing() = default;
  /// Takes what steps it can. Throws Error: what has gone wrong.
  virtual Advance advance(const Turn& turn) = 0;
  virtual bool has_crossed() const = 0;
  virtual bool has_spread() const { return true; }
  /// Whether ranks of this host are awaited, and no others yet.
  virtual bool awaits_host() const { return false; }
  /// Of these its own call in main memory is one after the other: see Turn::crosses. Messages with a rank, each way, or `collectives`.
  virtual std::pair<int, bool> queue() const { return collectives; }
  static constexpr std::pair<int, bool> collectives = {-1, false};
  /// Its groups were closed: when this returns, nobody uses memory that is used again.
  virtual void give_up() noexcept = 0;
};

/// An all_reduce where some host has several ranks. REQUIRES: Road::on_host.
class SumOfHosts final : public Crossing {
 public:
  /// Puts its first kernel on the program's `stream`. Throws as GpuEngine::put().
  SumOfHosts(const Road& road, const Request& request, cuda::Stream stream);

  Advance advance(const Turn& turn) override;
  bool has_crossed() const override { return !gathered_ && crossed_ == pieces_.size(); }
  bool has_spread() const override { return spread_ != nullptr; }
  bool awaits_host() const override { return gathered_ != nullptr; }
  void give_up() noexcept override;

 private:
  struct Piece {
    std::span<std::byte> on_gpu, here;
    std::unique_ptr<StreamMark> fetched = nullptr;
    Work work = {};
  };
  std::vector<std::size_t> counts() const;
  Request gathering() const;
  Request spreading() const;
  Request crossing(const Piece& piece) const;
  std::span<std::byte> own_slice() const;
  void fetch();

  const Road& road_;
  const Request request_;
  const std::vector<std::size_t> counts_;       // elements of each slice
  std::shared_ptr<device_arena::Block> block_;  // where the output does not lie in the arena
  std::span<std::byte> result_;                 // there, or the output
  std::span<const std::byte> source_;           // the input, or the result, where it was copied
  std::unique_ptr<GpuCall> gathered_, spread_;
  std::shared_ptr<std::byte> memory_;
  std::vector<Piece> pieces_;
  std::size_t crossed_ = 0, landed_ = 0;
  std::unique_ptr<StreamMark> copied_;  // from `block_`
};

/// Anything, by all ranks through main memory.
class WholeRequest final : public Crossing {
 public:
  /// `begin`: on the program's stream, set.
  WholeRequest(const Road& road, const Request& request, std::shared_ptr<StreamMark> begin);

  Advance advance(const Turn& turn) override;
  bool has_crossed() const override { return stage_ >= Stage::crosses; }
  std::pair<int, bool> queue() const override;
  void give_up() noexcept override;

 private:
  enum class Stage { waits, comes_down, crosses, goes_up };
  std::span<const std::byte> source() const;
  std::span<std::byte> target() const;
  bool is_root_of_broadcast() const;
  void fetch();

  const Road& road_;
  const Request request_;
  const std::shared_ptr<StreamMark> begin_;
  Stage stage_ = Stage::waits;
  std::shared_ptr<std::byte> memory_;
  Request here_;               // the same, in main memory
  std::byte* sent_ = nullptr;  // where source() is there
  std::unique_ptr<StreamMark> copied_;
  Work work_;
};

}  // namespace lockstep::gpu_hosts
