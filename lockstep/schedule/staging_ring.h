// Where pieces lie in staging memory (staged.cpp). They go round it, so that a rank writes where long ago
// others have read: those lines have left the others' caches, and need not be asked back from there
// (docs/decisions/0006).
//
// A piece begins where the one before it ended, the ring is seven of the longest pieces, and room for one
// more lies behind its end. So two pieces that follow each other never meet, which is all that schedules ask
// for: they are proven with two windows that take turns.
#pragma once

#include <cstddef>

namespace lockstep {

/// The pieces of one call: bytes from the begin of a rank's staging memory, the same for every rank.
struct StagingWindows {
  std::size_t first = 0;
  std::size_t each = 0;    ///< bytes of all but the last
  std::size_t around = 1;  ///< of the ring
  std::size_t begin_of(std::size_t piece) const { return (first + piece * each) % around; }
};

class StagingRing {
 public:
  /// `bytes` of staging memory; 0 where there is none.
  explicit StagingRing(std::size_t bytes) : piece_bytes_(bytes / parts / line * line) {}

  /// The longest piece.
  std::size_t piece_bytes() const { return piece_bytes_; }

  /// The next call's. All ranks make the same calls, so they have the same windows.
  /// REQUIRES: longest_bytes <= piece_bytes().
  StagingWindows take(std::size_t pieces, std::size_t longest_bytes) {
    const StagingWindows windows{.first = next_,
                                 .each = (longest_bytes + line - 1) / line * line,
                                 .around = (parts - 1) * piece_bytes_};
    next_ = windows.begin_of(pieces);
    return windows;
  }

 private:
  static constexpr std::size_t parts = 8;
  static constexpr std::size_t line = 64;

  std::size_t piece_bytes_;
  std::size_t next_ = 0;
};

}  // namespace lockstep
