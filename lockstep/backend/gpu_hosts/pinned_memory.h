// Main memory for a GPU's copies, page-locked so that they go beside everything else; and words of it for which streams wait until
// the host says so.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "lockstep/base/mapping.h"
#include "lockstep/memory/cuda_sharing.h"
#include "lockstep/memory/gpu.h"

namespace lockstep::gpu_hosts {

/// Page-locked for the GPUs of this process while it lives; shared memory, so that it stays where GPUs write when the process forks.
/// REQUIRES a Gpu::Current at both ends, which may wait for all that the GPU does.
class PageLockedMapping {
 public:
  /// Throws Error{system}: the system has no such memory, or CUDA does not lock it.
  PageLockedMapping(std::shared_ptr<Gpu> gpu, std::size_t bytes);
  ~PageLockedMapping();
  PageLockedMapping(const PageLockedMapping&) = delete;
  PageLockedMapping& operator=(const PageLockedMapping&) = delete;

  std::span<std::byte> bytes() const { return memory_.bytes(); }

 private:
  std::shared_ptr<Gpu> gpu_;
  Mapping memory_;
};

/// Blocks that are used again: locking pages takes longer than a copy of them. Thread safety: any number of threads at once.
class PinnedMemory : public std::enable_shared_from_this<PinnedMemory> {
 public:
  explicit PinnedMemory(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  /// `bytes` and more, where a page begins, until the last copy of the pointer is gone. May wait for all that the GPU does. REQUIRES a
  /// Gpu::Current. Throws Error{system}.
  std::shared_ptr<std::byte> take(std::size_t bytes);

 private:
  using Blocks = std::multimap<std::size_t, std::unique_ptr<PageLockedMapping>>;
  Blocks take_surplus();
  void put_back(std::unique_ptr<PageLockedMapping> block) noexcept;

  const std::shared_ptr<Gpu> gpu_;
  std::mutex mutex_;
  Blocks idle_;  // by their sizes
  std::size_t idle_bytes_ = 0;
};

/// What streams wait for, and the host sets.
class HostFlags : public std::enable_shared_from_this<HostFlags> {
 public:
  explicit HostFlags(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)), sharing_(cuda::SharingDriver::get()) {}
  ~HostFlags();
  HostFlags(const HostFlags&) = delete;
  HostFlags& operator=(const HostFlags&) = delete;

  class Flag {
   public:
    Flag(std::shared_ptr<HostFlags> all, std::uint32_t* word, cuda::Address at_gpu)
        : all_(std::move(all)), word_(word), at_gpu_(at_gpu), awaited_(*word + 1) {}
    ~Flag();
    Flag(const Flag&) = delete;
    Flag& operator=(const Flag&) = delete;

    void set() { std::atomic_ref(*word_).store(awaited_, std::memory_order_release); }
    bool is_set() const { return std::atomic_ref(*word_).load(std::memory_order_acquire) == awaited_; }
    /// `stream` goes on when it is set. REQUIRES a Gpu::Current. Throws Error{system}.
    void make_wait(cuda::Stream stream) const;

   private:
    const std::shared_ptr<HostFlags> all_;
    std::uint32_t* const word_;
    const cuda::Address at_gpu_;
    const std::uint32_t
        awaited_;  // what a word has counts up, so that streams that waited for an earlier one go on
  };
  /// As PinnedMemory::take().
  std::unique_ptr<Flag> take();

 private:
  struct Word {
    std::uint32_t* at;
    cuda::Address at_gpu;
  };
  void add_page();

  const std::shared_ptr<Gpu> gpu_;
  const cuda::SharingDriver& sharing_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<PageLockedMapping>> pages_;
  std::vector<Word> idle_;
};

}  // namespace lockstep::gpu_hosts
