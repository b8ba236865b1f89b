// Buffers that one call leaves to the next: memory from the system comes page by page, each cleared, which
// takes longer than to use it once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {

class SpareMemory {
 public:
  /// What is in it is unspecified.
  std::vector<std::byte> take(std::size_t bytes) {
    if (bytes == 0) return {};
    auto best = buffers_.end();
    for (auto buffer = buffers_.begin(); buffer != buffers_.end(); ++buffer) {
      const bool fits = buffer->capacity() >= bytes;
      if (fits && (best == buffers_.end() || buffer->capacity() < best->capacity())) best = buffer;
    }
    if (best == buffers_.end()) {
      // Instead of the largest, so that sizes that grow do not leave a buffer each.
      const auto smaller = [](const auto& a, const auto& b) { return a.capacity() < b.capacity(); };
      if (const auto largest = std::ranges::max_element(buffers_, smaller); largest != buffers_.end())
        buffers_.erase(largest);
      return std::vector<std::byte>(bytes);
    }
    std::vector<std::byte> taken = std::move(*best);
    buffers_.erase(best);
    taken.resize(bytes);
    return taken;
  }
  void give(std::vector<std::byte> buffer) {
    if (buffer.capacity() > 0) buffers_.push_back(std::move(buffer));
  }
  /// How many there are.
  std::size_t buffers() const { return buffers_.size(); }

 private:
  std::vector<std::vector<std::byte>> buffers_;
};

}  // namespace lockstep
