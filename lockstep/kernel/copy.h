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

/// Copies for another core, which has read what was at `destination` before. Where it takes long to ask for
/// such lines in order to write them, on AMD's processors, the copy goes past the caches
/// (docs/decisions/0007); elsewhere it is memcpy. What is stored afterwards is seen after it.
void copy_for_others(std::byte* destination, const std::byte* source, std::size_t bytes);

/// Whether that holds.
bool are_independent(const CopyTask& one, const CopyTask& other);

}  // namespace lockstep
