// Which stretches of a piece of memory are free: first fit, for arenas in main memory and on GPUs.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace lockstep {

/// Thread safety: one thread at a time.
class FreeRanges {
 public:
  explicit FreeRanges(std::size_t bytes) { free_.emplace(0, bytes); }

  /// Where the first free stretch of so many bytes begins; it is taken. nullopt: there is none.
  std::optional<std::size_t> take(std::size_t bytes) {
    for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
      const auto [offset, available] = *piece;
      if (available < bytes) continue;
      free_.erase(piece);
      if (available > bytes) free_.emplace(offset + bytes, available - bytes);
      return offset;
    }
    return std::nullopt;
  }

  /// REQUIRES: taken before, as a whole.
  void give_back(std::size_t begin, std::size_t bytes) {
    auto next = free_.lower_bound(begin);
    if (next != free_.end() && next->first == begin + bytes) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second == begin) {
        begin = previous->first;
        bytes += previous->second;
        free_.erase(previous);
      }
    }
    free_.emplace(begin, bytes);
  }

 private:
  std::map<std::size_t, std::size_t> free_;  // offset -> bytes, never adjacent
};

}  // namespace lockstep
