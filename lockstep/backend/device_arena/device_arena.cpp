#include "lockstep/backend/device_arena/device_arena.h"

#include <fmt/core.h>

#include <algorithm>
#include <random>
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
// For the others to take their eyes off the page, when they have heard that this rank is through.
constexpr auto looking_takes = std::chrono::seconds(1);

/// Processes of two containers may have one pid.
std::uint64_t number_of_process() {
  static const std::uint64_t number = [] {
    std::random_device entropy;
    return (std::uint64_t{entropy()} << 32 | entropy()) | 1;
  }();
  return number;
}

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
  stream_ = gpu_->make_urgent_stream();
  driver.check(driver.make_event(&mark_, cuda::event_default), "making a mark for streams");
  driver.check(sharing_.fill_bytes(bases_, 0, bytes, stream_), "clearing memory on the GPU");
  flush();
  own().process = number_of_process();
}

DeviceArena::~DeviceArena() {
  const cuda::Driver& driver = gpu_->driver();
  try {
    const Gpu::Current current(*gpu_);
    leave(Deadline::after(std::chrono::seconds(0)), [] { return true; });
    for (const Segment& segment : segments_) (void)driver.free(segment.address);
    (void)driver.free(bases_);
    (void)driver.destroy_event(mark_);
    (void)driver.destroy_stream(stream_);
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
    if (!segments_[number].is_everywhere) continue;
    if (const auto offset = segments_[number].free.take(bytes)) {
      return std::make_shared<Block>(shared_from_this(), Place::at(number, *offset),
                                     segments_[number].address + *offset, bytes);
    }
  }
  return nullptr;
}

/// Until it has done what was put on its stream.
void DeviceArena::flush() {
  const cuda::Driver& driver = gpu_->driver();
  driver.check(driver.record_event(mark_, stream_), "marking a stream");
  cuda::Result result = cuda::not_ready;
  while ((result = driver.query_event(mark_)) == cuda::not_ready) std::this_thread::yield();
  driver.check(result, "writing to the GPU");
}

void DeviceArena::clear(const Block& block) {
  const std::lock_guard lock(mutex_);
  gpu_->driver().check(sharing_.fill_bytes(block.address(), 0, block.bytes(), stream_),
                       "clearing memory on the GPU");
  flush();
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
  const bool is_told =
      may_share(sharing_.tell_memory(&told.memory, told.address), number, "sharing memory of the GPU");
  {
    const std::lock_guard lock(mutex_);
    segments_.push_back({told.address, told.bytes, FreeRanges(told.bytes)});
  }
  if (!is_told) require_open();
  own().segments = number + 1;
  map(members_.rank(), number);
  for (auto missing = without(number + 1); !missing.empty(); missing = without(number + 1)) {
    check();
    require_open();
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
  for (Segment& segment : segments_) segment.is_everywhere = true;  // one that some were late for, too
}

/// Whether it went well. False: not, of first memory, before anything was called: then all ranks do without. Throws Error{system}.
bool DeviceArena::may_share(cuda::Result result, std::uint32_t number, const std::string& what) try {
  gpu_->driver().check(result, what);
  return true;
} catch (const Error& error) {
  if (number > 0) throw;
  log::warning(error.what());
  own().is_barred = 1;
  return false;
}

void DeviceArena::require_open() const {
  for (int rank = 0; rank < members_.size(); ++rank) {
    if (page_.cell(rank).is_barred == 0) continue;
    const int world = members_[rank].world;
    throw Error(
        ErrorCode::unsupported,
        fmt::format("CUDA does not let rank {} share memory of GPU {} with other processes, as in containers "
                    "without a common IPC namespace (its warning says more); give each rank a GPU of its own "
                    "(device_for), or copy to main memory",
                    world, gpu_->device()),
        world);
  }
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

bool DeviceArena::is_own_process(int rank) const { return page_.cell(rank).process == own().process; }

void DeviceArena::map(int rank, std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  auto& seen = seen_[static_cast<std::size_t>(rank)];
  if (has_left_ || own().is_barred != 0 || seen.size() > number) return;  // another thread was quicker
  const ToldSegment told = page_.cell(rank).told[number];
  cuda::Address address = told.address;
  const cuda::Driver& driver = gpu_->driver();
  const std::string what = fmt::format("mapping {} bytes that rank {} shares on GPU {}", told.bytes,
                                       members_[rank].world, gpu_->device());
  if (!is_own_process(rank) &&
      !may_share(sharing_.open_memory(&address, told.memory, cuda::open_lazily), number, what))
    return;
  seen.push_back(address);
  const std::size_t index = static_cast<std::size_t>(rank) * most_segments + number;
  driver.check(sharing_.copy_in(bases_ + index * sizeof(address), &address, sizeof(address), stream_),
               "telling the GPU where memory lies");
  flush();
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
  const auto await = [&](std::uint32_t through, Deadline until) {
    while (!have_all(through) && !until.expired() && !gives_up())
      std::this_thread::sleep_for(between_mappings);
  };
  await(1, deadline);
  {
    const std::lock_guard lock(mutex_);
    if (is_quarantined_ || !have_all(1)) return;  // kernels may still come to it
  }
  own().is_through = 2;
  // The page is the first rank's, which will have other things there.
  if (members_.rank() == 0) await(2, Deadline::after(looking_takes));
}

bool DeviceArena::have_all(std::uint32_t through) const {
  for (int rank = 0; rank < members_.size(); ++rank) {
    if (page_.cell(rank).is_through < through) return false;
  }
  return true;
}

bool DeviceArena::have_all_left() const { return have_all(2); }

}  // namespace lockstep::device_arena
