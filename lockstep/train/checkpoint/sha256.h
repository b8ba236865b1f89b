// SHA-256, by which a checkpoint knows that its bytes are still those that were written.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

namespace lockstep {

using Sha256 = std::array<std::byte, 32>;

/// SHA-256 of what is given to update(), piece by piece.
class Sha256Sum {
 public:
  Sha256Sum();
  ~Sha256Sum();
  Sha256Sum(const Sha256Sum&) = delete;
  Sha256Sum& operator=(const Sha256Sum&) = delete;
  void update(std::span<const std::byte> bytes);
  /// Ends it: call once.
  Sha256 digest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
