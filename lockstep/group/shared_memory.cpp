#include "lockstep/group/shared_memory.h"

#include <fmt/core.h>

#include <array>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/impl.h"
#include "lockstep/group/outcome.h"

namespace lockstep {
namespace {

std::shared_ptr<HostRegion> region_of(const Group& group) {
  const auto& backend = group.impl().backend;
  return backend ? backend->shared_region() : nullptr;
}

std::optional<std::size_t> offset_in(const HostRegion& region, int rank, std::span<const std::byte> bytes) {
  const auto arena = reinterpret_cast<std::uintptr_t>(region.arena(rank));
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  if (begin < arena || begin - arena > region.arena_bytes()) return std::nullopt;
  const std::size_t offset = begin - arena;
  return bytes.size() <= region.arena_bytes() - offset ? std::optional(offset) : std::nullopt;
}

using Users = std::atomic<std::uint32_t>;
static_assert(Users::is_always_lock_free);
constexpr std::size_t header_bytes = 64;  // so that the bytes after it are aligned as the block is

/// The memory that is rank 0's `own`, on every rank.
std::span<std::byte> shared_bytes(const Group& group, std::span<const std::byte> own, std::size_t bytes) {
  const auto place = group.rank() == 0 ? place_of(group, own) : std::nullopt;
  std::array<std::uint64_t, 1> offset = {place ? place->offset : 0};
  broadcast(group, offset, 0).wait();
  return memory_at(group, {0, offset[0]}, bytes);
}

/// Blocks that this process has let go of while other ranks still use them.
class Waiting {
 public:
  static Waiting& all() {
    static auto* const one = new Waiting;  // what is left in it at the process's end, the system takes back
    return *one;
  }
  void add(std::shared_ptr<const void> mapping, ArenaBlock block, const Users* users) {
    const std::lock_guard lock(mutex_);
    blocks_.push_back({std::move(mapping), std::move(block), users});
  }
  void free_unused() {
    const std::lock_guard lock(mutex_);
    std::erase_if(blocks_, [](const One& one) { return one.users->load(std::memory_order_acquire) == 0; });
  }

 private:
  struct One {
    std::shared_ptr<const void> mapping;
    ArenaBlock block;
    const Users* users;
  };
  std::mutex mutex_;
  std::vector<One> blocks_;
};

}  // namespace

bool shares_memory(const Group& group) { return region_of(group) != nullptr; }

std::optional<ArenaPlace> place_of(const Group& group, std::span<const std::byte> bytes) {
  const auto region = region_of(group);
  if (!region) return std::nullopt;
  // Its own first: that is where it lies but for ranks that are threads of one process.
  for (int step = 0; step < group.size(); ++step) {
    const int rank = (group.rank() + step) % group.size();
    if (const auto offset = offset_in(*region, rank, bytes)) return ArenaPlace{rank, *offset};
  }
  return std::nullopt;
}

std::span<std::byte> memory_at(const Group& group, const ArenaPlace& place, std::size_t bytes) {
  const auto region = region_of(group);
  const bool is_inside = region && place.rank >= 0 && place.rank < group.size() &&
                         bytes <= region->arena_bytes() && place.offset <= region->arena_bytes() - bytes;
  if (!is_inside) {
    throw_invalid_argument(std::to_string(bytes) + " bytes at " + std::to_string(place.offset) + " of rank " +
                           std::to_string(place.rank) + "'s arena are not inside of it");
  }
  return {region->arena(place.rank) + place.offset, bytes};
}

std::shared_ptr<const void> memory_of(const Group& group) { return region_of(group); }

void keep_from_reuse(const Group& group, std::span<const std::byte> bytes) {
  if (const auto& backend = group.impl().backend) backend->keep_from_reuse(bytes);
}

SharedBlock::SharedBlock(const Group& group, std::size_t bytes) : mapping_(memory_of(group)) {
  const bool is_shared = mapping_ != nullptr;
  Waiting::all().free_unused();
  const auto failure = failure_in([&] {
    if (is_shared && group.rank() != 0) return;
    block_ = group.allocate_bytes(header_bytes + bytes);
    new (block_.bytes().data()) Users(static_cast<std::uint32_t>(is_shared ? group.size() : 1));
  });
  const auto failed = lowest_failure(group, failure);
  if (failure) throw Error(*failure);
  if (failed) {
    const int rank = group.world_rank(failed->rank);
    throw Error(ErrorCode::system,
                fmt::format("rank {} has no room for {} bytes in its arena; see there", rank, bytes), rank);
  }
  const auto memory = is_shared ? shared_bytes(group, block_.bytes(), header_bytes + bytes) : block_.bytes();
  users_ = std::launder(reinterpret_cast<Users*>(memory.data()));
  bytes_ = memory.subspan(header_bytes, bytes);
}

SharedBlock::~SharedBlock() {
  const bool is_last = users_->fetch_sub(1, std::memory_order_acq_rel) == 1;
  if (!is_last && !block_.bytes().empty()) Waiting::all().add(mapping_, std::move(block_), users_);
}

}  // namespace lockstep
