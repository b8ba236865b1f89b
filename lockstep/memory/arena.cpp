#include "lockstep/memory/arena.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/pages.h"

namespace lockstep {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t growth_bytes = std::size_t{2} << 20;

using base::round_up;

}  // namespace

Arena::Arena(std::shared_ptr<HostRegion> region, int local_rank)
    : region_(std::move(region)),
      local_rank_(local_rank),
      base_(region_->arena(local_rank)),
      capacity_(region_->arena_bytes()),
      free_(capacity_) {}

ArenaBlock Arena::allocate(std::size_t bytes) {
  const std::size_t wanted = round_up(std::max<std::size_t>(bytes, 1), alignment);
  const std::lock_guard lock(mutex_);
  end_quarantines();
  const auto offset = bytes > capacity_ ? std::nullopt : free_.take(wanted);
  if (!offset) {
    throw_invalid_argument(fmt::format(
        "the arena of {} bytes a rank has no room for {} more; set LOCKSTEP_ARENA_BYTES to a larger size",
        capacity_, bytes));
  }
  if (const std::size_t end = *offset + wanted; end > reserved_) {
    const std::size_t target = std::min(round_up(end, growth_bytes), capacity_);
    try {
      region_->reserve_arena(local_rank_, reserved_, target - reserved_);
    } catch (...) {
      free_.give_back(*offset, wanted);
      throw;
    }
    reserved_ = target;
  }
  return ArenaBlock(shared_from_this(), {base_ + *offset, bytes});
}

std::optional<std::size_t> Arena::offset_of(std::span<const std::byte> bytes) const {
  const std::less<> before;  // a total order also for pointers into different objects
  if (before(bytes.data(), base_) || before(base_ + capacity_, bytes.data() + bytes.size()))
    return std::nullopt;
  return static_cast<std::size_t>(bytes.data() - base_);
}

std::optional<Reach> Arena::reach(std::span<const std::byte> bytes, std::size_t least_registered) const {
  if (const auto offset = offset_of(bytes)) return Reach{.place = base_ + *offset, .offset = *offset};
  const bool may_be = registrations_.load(std::memory_order_acquire) > 0 && bytes.size() >= least_registered;
  return may_be ? reach_registered(bytes) : std::nullopt;
}

void Arena::quarantine() { quarantine({base_, capacity_}, nullptr); }

void Arena::quarantine(std::span<const std::byte> bytes, std::function<bool()> is_over) {
  const auto found = bytes.empty() ? std::nullopt : reach(bytes);  // also of what is registered
  if (!found) return;
  const std::lock_guard lock(mutex_);
  end_quarantines();
  quarantines_.push_back({{found->place, bytes.size()}, std::move(is_over)});
  has_quarantine_ = true;
}

void Arena::end_quarantines() {
  const auto ended =
      std::erase_if(quarantines_, [](const Quarantine& one) { return one.is_over && one.is_over(); });
  if (ended == 0) return;
  has_quarantine_ = !quarantines_.empty();
  std::erase_if(freed_meanwhile_, [this](std::span<std::byte> bytes) {
    if (overlaps_quarantine(bytes)) return false;
    give_back(bytes);
    return true;
  });
}

bool Arena::is_quarantined(std::span<const std::byte> bytes) const {
  if (!has_quarantine_) return false;
  const std::lock_guard lock(mutex_);
  return overlaps_quarantine(bytes);
}

bool Arena::overlaps_quarantine(std::span<const std::byte> bytes) const {
  return std::ranges::any_of(quarantines_, [&](const Quarantine& one) {
    return one.bytes.data() < bytes.data() + bytes.size() &&
           bytes.data() < one.bytes.data() + one.bytes.size();
  });
}

void Arena::release(std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  end_quarantines();
  if (overlaps_quarantine(bytes)) return freed_meanwhile_.push_back(bytes);
  give_back(bytes);
}

void Arena::give_back(std::span<std::byte> bytes) {
  free_.give_back(static_cast<std::size_t>(bytes.data() - base_),
                  round_up(std::max<std::size_t>(bytes.size(), 1), alignment));
}

ArenaBlock::ArenaBlock(std::shared_ptr<Arena> arena, std::span<std::byte> bytes)
    : arena_(std::move(arena)), bytes_(bytes) {}

ArenaBlock::ArenaBlock(ArenaBlock&& other) noexcept
    : arena_(std::move(other.arena_)), bytes_(std::exchange(other.bytes_, {})) {}

ArenaBlock& ArenaBlock::operator=(ArenaBlock&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

ArenaBlock::~ArenaBlock() {
  if (arena_) arena_->release(bytes_);
}

bool ArenaBlock::is_quarantined() const { return arena_ != nullptr && arena_->is_quarantined(bytes_); }

}  // namespace lockstep
