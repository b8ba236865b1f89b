// A thread for each device of a process, which computes what is that device's.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep {

/// Threads with their share of the maker's threads for operators (at::get_num_threads()), at least one each.
class SlotThreads {
 public:
  explicit SlotThreads(std::size_t slots);
  SlotThreads(const SlotThreads&) = delete;
  SlotThreads& operator=(const SlotThreads&) = delete;
  ~SlotThreads();

  std::size_t slots() const { return threads_.size(); }

  /// Calls `work` with each of the first `slots` numbers, each on its own thread, in the caller's state of libtorch
  /// (grad mode, autocast, inference). When all have returned, the exception of the first slot that threw is thrown.
  /// One caller at a time; not from within `work`.
  void run(std::size_t slots, const std::function<void(std::size_t)>& work);

 private:
  void serve(std::size_t slot, int operator_threads);
  void end();

  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  std::function<void(std::size_t)> work_;  // of this round
  std::uint64_t round_ = 0;
  std::size_t slots_of_round_ = 0;
  std::size_t running_ = 0;
  bool is_over_ = false;
  std::vector<std::exception_ptr> failures_;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
