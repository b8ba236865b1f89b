// Private memory that a call works in, and that the next call of the same place finds again.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/base/mapping.h"

namespace lockstep {

/// What is large is mapped, so that it goes back to the system with the group that it was of: malloc would keep it, for each thread
/// that ever worked in some group.
class WorkMemory {
 public:
  /// At least `bytes`. What was in it stays only where it was enough already. Throws Error{system}, std::bad_alloc.
  std::byte* at_least(std::size_t bytes) {
    constexpr std::size_t large = std::size_t{64} << 10;
    if (bytes <= size_) return data_;
    size_ = 0;  // until there is more: what follows may throw
    if (bytes < large) {
      small_.resize(bytes);
      data_ = small_.data();
    } else {
      mapped_ = Mapping();
      mapped_ = Mapping::anonymous(bytes);
      data_ = mapped_.data();
    }
    size_ = bytes;
    return data_;
  }
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::vector<std::byte> small_;
  Mapping mapped_;
};

}  // namespace lockstep
