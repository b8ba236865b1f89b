// Memory that a program has from elsewhere (a vector, a matrix library's, another framework's tensor), and that the other ranks of
// its host reach all the same, so that collectives read and write it where it lies, as they do arenas.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "lockstep/memory/arena_block.h"

namespace lockstep {

class Arena;

/// What Group::register_memory() gives: the memory is registered as long as this lives. Move-only; outlives its group.
class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  /// Of a rank that shares memory with no other: there is nothing to do.
  explicit RegisteredMemory(std::span<std::byte> bytes) : bytes_(bytes) {}
  RegisteredMemory(RegisteredMemory&& other) noexcept;
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept;
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  /// The memory is the program's alone again, with what is in it. No call may be under way with it.
  ~RegisteredMemory();

  std::span<std::byte> bytes() const { return bytes_; }
  /// Whether other ranks reach it: not where each has a host to itself, and not where ranks are threads, which need no more.
  bool is_shared() const { return !block_.bytes().empty(); }

 private:
  friend class Arena;
  RegisteredMemory(std::span<std::byte> bytes, ArenaBlock block) : bytes_(bytes), block_(std::move(block)) {}

  std::span<std::byte> bytes_;
  ArenaBlock block_;
};

}  // namespace lockstep
