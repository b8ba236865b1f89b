#include "lockstep/backend/device_arena/device_arena.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/words.h"

namespace lockstep::device_arena {
namespace {

// As CUDA aligns what it allocates.
constexpr std::size_t alignment = 256;
constexpr std::size_t least_segment_bytes = std::size_t{32} << 20;
// Of looks at what other processes have mapped: they wake nobody.
constexpr auto between_mappings = std::chrono::microseconds(200);

}  // namespace

Block::~Block() { arena_->give_back(*this); }

DeviceArena::DeviceArena(std::shared_ptr<Gpu> gpu, SharedPage page, const Members& members)
    : gpu_(std::move(gpu)),
      sharing_(cuda::SharingDriver::get()),
      page_(page),
      members_(members),
      seen_(static_cast<std::size_t>(members.size())) {
  const cuda::Driver& driver = gpu_->driver();
  constexpr std::size_t bytes = sizeof(cuda::Address) * most_ranks * most_segments;
  driver.check(driver.allocate(&bases_, bytes), "allocating memory on the GPU");
  driver.check(sharing_.fill_bytes(bases_, 0, bytes), "clearing memory on the GPU");
  own().pid = ::getpid();
}

DeviceArena::~DeviceArena() {
  const cuda::Driver& driver = gpu_->driver();
  try {
    const Gpu::Current current(*gpu_);
    leave(Deadline::after(std::chrono::seconds(0)), [] { return true; });
    for (const Segment& segment : segments_) (void)driver.free(segment.address);
    (void)driver.free(bases_);
  } catch (const Error& error) {  // the driver has ended, and all that it had
    log::debug(error.what());
  }
}

std::shared_ptr<Block> DeviceArena::allocate(std::size_t bytes, Deadline deadline,
                                             const std::function<void()>& check) {
  const std::size_t wanted = base::round_up(std::max<std::size_t>(bytes, 1), alignment);
  if (auto block = take(wanted)) return block;
  const std::lock_guard growth(growth_);
  if (auto block = take(wanted)) return block;  // another thread has grown it
  grow(wanted, deadline, check);
  return take(wanted);
}

std::shared_ptr<Block> DeviceArena::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (std::size_t number = 0; number < segments_.size(); ++number) {
    if (const auto offset = segments_[number].free.take(bytes)) {
      return std::make_shared<Block>(shared_from_this(), Place::at(number, *offset),
                                     segments_[number].address + *offset, bytes);
    }
  }
  return nullptr;
}

/// REQUIRES: growth_.
void DeviceArena::grow(std::size_t bytes, Deadline deadline, const std::function<void()>& check) {
  std::size_t all = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const Segment& segment : segments_) all += segment.bytes;
  }
  const std::uint32_t number = own().segments;
  if (number == most_segments) {
    throw Error(ErrorCode::system,
                fmt::format("GPU {}: the arena has {} segments already, and no room for {} bytes more",
                            gpu_->device(), number, bytes));
  }
  const cuda::Driver& driver = gpu_->driver();
  ToldSegment& told = own().told[number];
  told.bytes = std::max(bytes, std::max(least_segment_bytes, all));
  cuda::Result result = driver.allocate(&told.address, told.bytes);
  if (result == cuda::out_of_memory && told.bytes > bytes) {  // then what is needed, and no more
    told.bytes = bytes;
    result = driver.allocate(&told.address, told.bytes);
  }
  driver.check(result, fmt::format("{} bytes for what ranks share on GPU {}", told.bytes, gpu_->device()));
  driver.check(sharing_.tell_memory(&told.memory, told.address), "sharing memory of the GPU");
  own().segments = number + 1;
  map(members_.rank(), number);
  for (auto missing = without(number + 1); !missing.empty(); missing = without(number + 1)) {
    check();
    if (deadline.expired()) {
      throw Error(ErrorCode::timeout,
                  fmt::format("{} did not map {} bytes that rank {} shares on GPU {}",
                              base::name_ranks(missing), told.bytes, members_.self().world, gpu_->device()),
                  missing.size() == 1 ? std::optional(missing.front()) : std::nullopt);
    }
    map_new();  // others may wait for this one
    std::this_thread::sleep_for(between_mappings);
  }
  const std::lock_guard lock(mutex_);
  segments_.push_back({told.address, told.bytes, FreeRanges(told.bytes)});
}

/// World ranks that have not mapped so many of this rank's segments.
std::vector<int> DeviceArena::without(std::uint32_t segments) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < members_.size(); ++rank) {
    if (page_.cell(rank).mapped[members_.rank()] < segments) ranks.push_back(members_[rank].world);
  }
  return ranks;
}

void DeviceArena::map_new() {
  for (int rank = 0; rank < members_.size(); ++rank) {
    const std::uint32_t made = std::min<std::uint32_t>(page_.cell(rank).segments, most_segments);
    for (std::uint32_t number = own().mapped[rank]; number < made; ++number) map(rank, number);
  }
}

bool DeviceArena::is_own_process(int rank) const { return page_.cell(rank).pid == own().pid; }

void DeviceArena::map(int rank, std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  auto& seen = seen_[static_cast<std::size_t>(rank)];
  if (has_left_ || seen.size() > number) return;  // another thread was quicker
  const ToldSegment told = page_.cell(rank).told[number];
  cuda::Address address = told.address;
  const cuda::Driver& driver = gpu_->driver();
  if (!is_own_process(rank)) {
    driver.check(sharing_.open_memory(&address, told.memory, cuda::open_lazily),
                 fmt::format("mapping {} bytes that rank {} shares on GPU {}", told.bytes,
                             members_[rank].world, gpu_->device()));
  }
  seen.push_back(address);
  const std::size_t index = static_cast<std::size_t>(rank) * most_segments + number;
  driver.check(sharing_.copy_in(bases_ + index * sizeof(address), &address, sizeof(address)),
               "telling the GPU where memory lies");
  own().mapped[rank] = number + 1;
}

cuda::Address DeviceArena::address_of(int rank, Place place) const {
  const std::lock_guard lock(mutex_);
  return seen_[static_cast<std::size_t>(rank)][place.segment()] + place.offset();
}

std::optional<Place> DeviceArena::find(const void* memory, std::size_t bytes) const {
  const auto address = static_cast<cuda::Address>(reinterpret_cast<std::uintptr_t>(memory));
  const std::lock_guard lock(mutex_);
  for (std::size_t number = 0; number < segments_.size(); ++number) {
    const Segment& segment = segments_[number];
    if (address >= segment.address && address - segment.address <= segment.bytes &&
        bytes <= segment.bytes - (address - segment.address))
      return Place::at(number, address - segment.address);
  }
  return std::nullopt;
}

void DeviceArena::give_back(const Block& block) noexcept {
  const std::lock_guard lock(mutex_);
  if (!is_quarantined_)
    segments_[block.place().segment()].free.give_back(block.place().offset(), block.bytes());
}

void DeviceArena::quarantine() {
  const std::lock_guard lock(mutex_);
  is_quarantined_ = true;
}

void DeviceArena::leave(Deadline deadline, const std::function<bool()>& gives_up) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(has_left_, true)) return;
    for (int rank = 0; rank < members_.size(); ++rank) {
      if (is_own_process(rank)) continue;
      for (const cuda::Address address : seen_[static_cast<std::size_t>(rank)])
        (void)sharing_.close_memory(address);
    }
  }
  own().is_through = 1;
  const auto are_through = [this] {
    for (int rank = 0; rank < members_.size(); ++rank) {
      if (page_.cell(rank).is_through == 0) return false;
    }
    return true;
  };
  while (!are_through() && !deadline.expired() && !gives_up()) std::this_thread::sleep_for(between_mappings);
}

}  // namespace lockstep::device_arena
