// A piece of a rank's arena (arena.h), as a program holds it: memory that every rank of the host can reach.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace lockstep {

class Arena;

/// Move-only. The memory lives as long as the block, whatever becomes of the group.
class ArenaBlock {
 public:
  ArenaBlock() = default;
  ArenaBlock(ArenaBlock&& other) noexcept;
  ArenaBlock& operator=(ArenaBlock&& other) noexcept;
  ArenaBlock(const ArenaBlock&) = delete;
  ArenaBlock& operator=(const ArenaBlock&) = delete;
  ~ArenaBlock();
  std::span<std::byte> bytes() const { return bytes_; }
  /// A peer that was stopped may still write to this memory once it is used for something else.
  bool is_quarantined() const;
  Arena* arena() const { return arena_.get(); }

 private:
  friend class Arena;
  ArenaBlock(std::shared_ptr<Arena> arena, std::span<std::byte> bytes);

  std::shared_ptr<Arena> arena_;
  std::span<std::byte> bytes_;
};

}  // namespace lockstep
