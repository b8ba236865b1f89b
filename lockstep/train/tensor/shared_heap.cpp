#include "lockstep/train/tensor/shared_heap.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t header_bytes = 64;
constexpr std::size_t least_bytes = 64;

/// Up to the next of four sizes between powers of two, so that what comes back fits what is asked for next.
std::size_t rounded(std::size_t bytes) {
  if (bytes <= least_bytes) return least_bytes;
  const std::size_t step = std::max(least_bytes, std::bit_floor(bytes - 1) / 4);
  return (bytes + step - 1) / step * step;
}

/// Right before a tensor's data: whatever is given back has to be found from its address alone.
struct Header {
  ArenaBlock block;
  std::size_t size;
  std::uint64_t heap;  ///< which one it came from
};
static_assert(sizeof(Header) <= header_bytes);

/// libtorch keeps a plain pointer to it in storages that may grow, so there is one for ever; while no heap is
/// open, the allocator from before serves those.
class Allocator final : public c10::Allocator {
 public:
  static Allocator& instance() {
    static auto* const immortal = new Allocator;
    return *immortal;
  }

  /// False if one is open.
  bool open(const Group& group, const SharedHeapOptions& options) {
    const std::lock_guard lock(mutex_);
    if (group_) return false;
    options_ = options;
    begin_in(group);
    before_ = c10::GetCPUAllocator();
    c10::SetCPUAllocator(this);
    return true;
  }
  std::string name_of_group() const {
    const std::lock_guard lock(mutex_);
    return group_ ? group_->name() : "";
  }

  void move_to(const Group& group) {
    const std::lock_guard lock(mutex_);
    spare_.clear();
    begin_in(group);
  }

  void close() {
    const std::lock_guard lock(mutex_);
    c10::SetCPUAllocator(before_);
    spare_.clear();
    group_.reset();
    first_ = {};
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &give_back, c10::Device(c10::DeviceType::CPU)};
    const std::lock_guard lock(mutex_);
    if (!group_ || first_.is_quarantined()) return before_->allocate(bytes);
    std::byte* const data = take(bytes) + header_bytes;
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }

  SharedHeapStatistics statistics() const {
    const std::lock_guard lock(mutex_);
    return statistics_;
  }

 private:
  void begin_in(const Group& group) {
    first_ = group.allocate_bytes(1);
    group_ = group;
    statistics_ = {};
    ++heap_;
  }

  std::byte* take(std::size_t bytes) {
    if (bytes > SIZE_MAX / 2) throw_full(bytes, "there cannot be so many");
    const std::size_t size = rounded(bytes);
    ArenaBlock block = take_spare(size);
    if (block.bytes().empty()) block = take_new(bytes, size);
    std::byte* const memory = block.bytes().data();
    new (memory) Header{std::move(block), size, heap_};
    ++statistics_.allocations;
    statistics_.used_bytes += size;
    statistics_.peak_bytes =
        std::max(statistics_.peak_bytes, statistics_.used_bytes + statistics_.spare_bytes);
    return memory;
  }

  ArenaBlock take_spare(std::size_t size) {
    const auto found = spare_.find(size);
    if (found == spare_.end() || found->second.empty()) return {};
    ArenaBlock block = std::move(found->second.back());
    found->second.pop_back();
    statistics_.spare_bytes -= size;
    ++statistics_.reused;
    return block;
  }

  ArenaBlock take_new(std::size_t bytes, std::size_t size) {
    try {
      return group_->allocate_bytes(header_bytes + size);
    } catch (const Error&) {
      spare_.clear();  // in other sizes there may be room
      statistics_.spare_bytes = 0;
    }
    try {
      return group_->allocate_bytes(header_bytes + size);
    } catch (const Error& error) {
      throw_full(bytes, error.what());
    }
  }

  [[noreturn]] void throw_full(std::size_t bytes, const std::string& why) const {
    throw_invalid_argument("the shared heap cannot hold a tensor of " + std::to_string(bytes) +
                           " bytes beside the " + std::to_string(statistics_.used_bytes) +
                           " that others use: " + why);
  }

  static void give_back(void* data) {
    if (data == nullptr) return;
    auto* const header = reinterpret_cast<Header*>(static_cast<std::byte*>(data) - header_bytes);
    Header last = std::move(*header);
    header->~Header();
    instance().keep(std::move(last));
  }

  void keep(Header last) {
    const std::lock_guard lock(mutex_);
    if (!group_ || last.heap != heap_) return;
    statistics_.used_bytes -= last.size;
    if (last.block.is_quarantined()) return;
    if (statistics_.spare_bytes + last.size > options_.most_spare_bytes) return;
    statistics_.spare_bytes += last.size;
    spare_[last.size].push_back(std::move(last.block));
  }

  mutable std::mutex mutex_;
  std::optional<Group> group_;  // of the heap that is open
  ArenaBlock first_;            // knows what became of the arena
  SharedHeapOptions options_;
  std::uint64_t heap_ = 0;
  c10::Allocator* before_ = nullptr;
  std::map<std::size_t, std::vector<ArenaBlock>> spare_;  // by size
  SharedHeapStatistics statistics_;
};

}  // namespace

SharedHeap::SharedHeap(const Group& group, const SharedHeapOptions& options) {
  if (Allocator::instance().open(group, options)) return;
  throw_invalid_argument("this process has a shared heap already, in group \"" +
                         Allocator::instance().name_of_group() +
                         "\"; libtorch has one allocator: destroy that heap first, or go on with it");
}

std::unique_ptr<SharedHeap> SharedHeap::unless_there_is_one(const Group& group,
                                                            const SharedHeapOptions& options) {
  if (!Allocator::instance().open(group, options)) return nullptr;
  return std::unique_ptr<SharedHeap>(new SharedHeap);
}

SharedHeap::~SharedHeap() { Allocator::instance().close(); }

void SharedHeap::move_to(const Group& group) { Allocator::instance().move_to(group); }

SharedHeapStatistics SharedHeap::statistics() const { return Allocator::instance().statistics(); }

}  // namespace lockstep
