#include "lockstep/backend/gpu_hosts/pinned_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/backend/forked.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/pages.h"

namespace lockstep::gpu_hosts {
namespace {

/// What is kept, of blocks that nobody uses: large ones take longest to lock.
constexpr std::size_t most_idle_bytes = std::size_t{1} << 30;

Mapping shared_pages(std::size_t bytes) {
  const std::size_t size = base::round_up(std::max<std::size_t>(bytes, 1));
  return Mapping::of_file(make_memfd("lockstep-pinned", size).get(), size);
}

}  // namespace

PageLockedMapping::PageLockedMapping(std::shared_ptr<Gpu> gpu, std::size_t bytes)
    : gpu_(std::move(gpu)), memory_(shared_pages(bytes)) {
  const cuda::Result locked = cuda::SharingDriver::get().register_host(
      memory_.data(), memory_.size(), cuda::portable | cuda::mapped_for_gpus);
  gpu_->driver().check(locked, "page-locking " + std::to_string(memory_.size()) + " bytes of main memory");
}

PageLockedMapping::~PageLockedMapping() { (void)cuda::SharingDriver::get().unregister_host(memory_.data()); }

PinnedMemory::~PinnedMemory() {
  try {
    const Gpu::Current current(*gpu_);
    idle_.clear();
  } catch (const Error& error) {  // the driver has ended, and what it had locked with it
    log::debug(error.what());
  }
}

std::shared_ptr<std::byte> PinnedMemory::take(std::size_t bytes) {
  std::unique_ptr<PageLockedMapping> block;
  {
    const std::lock_guard lock(mutex_);
    const auto found = idle_.lower_bound(bytes);
    const bool fits = found != idle_.end() && found->first <= 2 * std::max(bytes, base::page_bytes);
    if (fits) {
      idle_bytes_ -= found->first;
      block = std::move(idle_.extract(found).mapped());
    }
  }
  if (!block) {
    take_surplus().clear();
    block = std::make_unique<PageLockedMapping>(gpu_, bytes);
  }
  std::byte* const data = block->bytes().data();
  return {data, [self = shared_from_this(), raw = block.release()](std::byte*) {
            self->put_back(std::unique_ptr<PageLockedMapping>(raw));
          }};
}

/// Here, and not where they are put back: there nobody may wait for the GPU.
PinnedMemory::Blocks PinnedMemory::take_surplus() {
  const std::lock_guard lock(mutex_);
  Blocks surplus;
  while (idle_bytes_ > most_idle_bytes) {
    idle_bytes_ -= idle_.begin()->first;
    surplus.insert(idle_.extract(idle_.begin()));
  }
  return surplus;
}

void PinnedMemory::put_back(std::unique_ptr<PageLockedMapping> block) noexcept {
  const std::lock_guard lock(mutex_);
  idle_bytes_ += block->bytes().size();
  idle_.emplace(block->bytes().size(), std::move(block));
}

HostFlags::~HostFlags() {
  try {
    const Gpu::Current current(*gpu_);
    pages_.clear();
  } catch (const Error& error) {
    log::debug(error.what());
  }
}

std::unique_ptr<HostFlags::Flag> HostFlags::take() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) add_page();
  const Word word = idle_.back();
  idle_.pop_back();
  return std::make_unique<Flag>(shared_from_this(), word.at, word.at_gpu);
}

void HostFlags::add_page() {
  auto page = std::make_unique<PageLockedMapping>(gpu_, base::page_bytes);
  const auto words = page->bytes();
  cuda::Address at_gpu = 0;
  gpu_->driver().check(sharing_.host_address(&at_gpu, words.data(), 0), "showing main memory to the GPU");
  for (std::size_t at = 0; at < words.size(); at += sizeof(std::uint32_t))
    idle_.push_back({reinterpret_cast<std::uint32_t*>(words.data() + at), at_gpu + at});
  pages_.push_back(std::move(page));
}

HostFlags::Flag::~Flag() {
  if (is_forked_child()) return;  // it is the parent's
  set();
  const std::lock_guard lock(all_->mutex_);
  all_->idle_.push_back({word_, at_gpu_});
}

void HostFlags::Flag::make_wait(cuda::Stream stream) const {
  if (is_set()) return;
  all_->gpu_->driver().check(
      all_->sharing_.wait_for_value(stream, at_gpu_, awaited_, cuda::wait_for_at_least),
      "making a stream wait for the host");
}

}  // namespace lockstep::gpu_hosts
