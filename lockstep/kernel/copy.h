// Two copies at once. Between the caches of two cores a copy waits for lines of the other core to arrive, or
// for its own to be given up there; a copy in one direction and one in the other wait less together than one
// after the other.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

struct CopyTask {
  std::byte* destination = nullptr;
  const std::byte* source = nullptr;
  std::size_t bytes = 0;
};

/// Does both, a few cache lines of each in turn. REQUIRES: no destination overlaps another buffer of the two.
void copy_both(const CopyTask& one, const CopyTask& other);

/// Whether that holds.
bool are_independent(const CopyTask& one, const CopyTask& other);

}  // namespace lockstep
