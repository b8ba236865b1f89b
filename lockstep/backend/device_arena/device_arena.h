// A rank's memory on a GPU that it shares with the group's other ranks, which all of them reach. It grows by segments: whoever
// makes one waits until all others have mapped it, which each does when it looks (map_new), whatever else it is doing.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "lockstep/backend/device_arena/shared_page.h"
#include "lockstep/base/deadline.h"
#include "lockstep/memory/free_ranges.h"
#include "lockstep/memory/gpu.h"
#include "lockstep/transport/members.h"

namespace lockstep::device_arena {

class DeviceArena;

/// A piece of this rank's arena; the memory lives as long as the block.
class Block {
 public:
  Block(std::shared_ptr<DeviceArena> arena, Place place, cuda::Address address, std::size_t bytes)
      : arena_(std::move(arena)), place_(place), address_(address), bytes_(bytes) {}
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  Place place() const { return place_; }
  cuda::Address address() const { return address_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<DeviceArena> arena_;
  Place place_;
  cuda::Address address_;
  std::size_t bytes_;
};

/// Thread safety: any number of threads at once. All but find(): REQUIRES a Gpu::Current.
class DeviceArena : public std::enable_shared_from_this<DeviceArena> {
 public:
  DeviceArena(std::shared_ptr<Gpu> gpu, SharedPage page, const Members& members);
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  /// Throws Error: system (the GPU has no memory for it), timeout (ranks that do not map it, named), what `check` throws while it
  /// waits; as require_open().
  std::shared_ptr<Block> allocate(std::size_t bytes, Deadline deadline, const std::function<void()>& check);
  /// Where `bytes` at `memory` lie; nullopt unless they do as a whole.
  std::optional<Place> find(const void* memory, std::size_t bytes) const;
  /// Throws Error{unsupported} where some rank could not map the others' first memory, naming it.
  void require_open() const;
  /// Of zeros, on the GPU when this returns. Throws Error{system}.
  void clear(const Block& block);
  /// Maps what other ranks have made since. Throws Error{system}.
  void map_new();
  /// A u64[most_ranks][most_segments] on the GPU: where this process sees the ranks' segments.
  cuda::Address bases() const { return bases_; }
  /// Where this process sees it. REQUIRES: of a segment that it has mapped.
  cuda::Address address_of(int rank, Place place) const;
  /// From now on nothing freed is used again: others may still write there.
  void quarantine();
  /// Uses nobody's memory any more, and waits until nobody uses its own; not beyond `deadline`, nor when `gives_up`.
  void leave(Deadline deadline, const std::function<bool()>& gives_up);
  /// Whether nobody will use the page again.
  bool have_all_left() const;

 private:
  friend class Block;
  struct Segment {
    cuda::Address address;
    std::size_t bytes;
    FreeRanges free;
    bool is_everywhere = false;  ///< all ranks have mapped it
  };
  std::shared_ptr<Block> take(std::size_t bytes);
  void grow(std::size_t bytes, Deadline deadline, const std::function<void()>& check);
  void map(int rank, std::uint32_t number);
  void flush();
  bool have_all(std::uint32_t through) const;
  bool may_share(cuda::Result result, std::uint32_t number, const std::string& what);
  bool is_own_process(int rank) const;
  std::vector<int> without(std::uint32_t segments) const;
  void give_back(const Block& block) noexcept;
  RankCell& own() const { return page_.cell(members_.rank()); }

  const std::shared_ptr<Gpu> gpu_;
  const cuda::SharingDriver& sharing_;
  const SharedPage page_;
  const Members members_;
  cuda::Stream stream_ = nullptr;  // not the program's default one, which may be busy
  cuda::Event mark_ = nullptr;
  cuda::Address bases_ = 0;
  std::mutex growth_;         // one thread grows at a time
  mutable std::mutex mutex_;  // of what follows
  std::vector<Segment> segments_;
  std::vector<std::vector<cuda::Address>> seen_;  // of each rank, where this process sees its segments
  bool is_quarantined_ = false;
  bool has_left_ = false;
};

}  // namespace lockstep::device_arena
