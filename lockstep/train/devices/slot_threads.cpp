#include "lockstep/train/devices/slot_threads.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include <algorithm>

#include "lockstep/base/start_thread.h"

namespace lockstep {

SlotThreads::SlotThreads(std::size_t slots) : failures_(slots) {
  const int each = std::max(1, at::get_num_threads() / static_cast<int>(slots));
  try {
    for (std::size_t slot = 0; slot < slots; ++slot)
      threads_.push_back(start_thread("lockstep-slot", [this, slot, each] { serve(slot, each); }));
  } catch (...) {
    end();
    throw;
  }
}

SlotThreads::~SlotThreads() { end(); }

void SlotThreads::end() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void SlotThreads::run(std::size_t slots, const std::function<void(std::size_t)>& work) {
  const at::ThreadLocalState state;
  std::unique_lock lock(mutex_);
  work_ = [&](std::size_t slot) {
    const at::ThreadLocalStateGuard guard(state);
    work(slot);
  };
  std::ranges::fill(failures_, nullptr);
  slots_of_round_ = running_ = slots;
  ++round_;
  begun_.notify_all();
  ended_.wait(lock, [&] { return running_ == 0; });
  work_ = nullptr;
  const auto failure = std::ranges::find_if(failures_, [](const auto& each) { return each != nullptr; });
  if (failure != failures_.end()) std::rethrow_exception(*failure);
}

void SlotThreads::serve(std::size_t slot, int operator_threads) {
  at::set_num_threads(operator_threads);
  std::uint64_t served = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    begun_.wait(lock, [&] { return is_over_ || round_ != served; });
    if (is_over_) return;
    served = round_;
    if (slot >= slots_of_round_) continue;
    lock.unlock();
    std::exception_ptr failure;
    try {
      work_(slot);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failures_[slot] = failure;
    if (--running_ == 0) ended_.notify_one();
  }
}

}  // namespace lockstep
