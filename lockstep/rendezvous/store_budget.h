// Everything that a store holds for its clients counts against two numbers: values, wills and what they wait for against
// one, requests that arrive and replies that nobody fetches against the other. So a client cannot make it hold more than
// both, however it asks.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace lockstep {

/// What maps and lists take for one entry beside its text, about.
inline constexpr std::size_t store_entry_bytes = 128;

/// Thread safety: all calls, from any thread.
class StoreBudget {
 public:
  explicit StoreBudget(std::size_t limit) : limit_(limit) {}

  /// Instead of `had` bytes `wants` are held. False: there is no room, and it stays as it was.
  [[nodiscard]] bool replace(std::size_t had, std::size_t wants) noexcept {
    std::size_t used = used_.load();
    do {
      if (wants > had && used - had + wants > limit_) return false;
    } while (!used_.compare_exchange_weak(used, used - had + wants));
    return true;
  }
  void give_back(std::size_t bytes) noexcept { used_ -= bytes; }
  std::size_t used() const { return used_; }
  std::size_t limit() const { return limit_; }

 private:
  const std::size_t limit_;
  std::atomic<std::size_t> used_ = 0;
};

/// A share of the budget, given back with its end.
class StoreShare {
 public:
  explicit StoreShare(std::shared_ptr<StoreBudget> budget) : budget_(std::move(budget)) {}
  StoreShare(StoreShare&& other) noexcept
      : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
  StoreShare& operator=(StoreShare&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~StoreShare() {
    if (budget_) budget_->give_back(bytes_);
  }

  /// False: there is no room, and it stays as large as it was.
  [[nodiscard]] bool resize(std::size_t bytes) noexcept {
    if (!budget_->replace(bytes_, bytes)) return false;
    bytes_ = bytes;
    return true;
  }
  [[nodiscard]] bool grow(std::size_t bytes) noexcept { return resize(bytes_ + bytes); }
  /// To no more than this.
  void shrink(std::size_t bytes) noexcept {
    if (bytes < bytes_) (void)resize(bytes);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<StoreBudget> budget_;
  std::size_t bytes_ = 0;
};

/// Counts as long as anybody holds it: also where the store has another by now, and a slow client still reads this one.
struct StoreValue {
  std::string text;
  StoreShare share;
};
using SharedValue = std::shared_ptr<const StoreValue>;

}  // namespace lockstep
