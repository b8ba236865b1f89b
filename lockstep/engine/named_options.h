// How named operations are carried out, and what they have cost so far.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

struct NamedOptions {
  /// all_reduces that are ready together become one call of at most so many bytes. 0: each is its own.
  std::size_t fusion_bytes = std::size_t{64} << 20;
  /// A thread drives what is under way while the program does other things. It sleeps while nothing is, and
  /// while a wait() drives. Without it operations go on in wait(), test() and the next submission.
  bool background_thread = true;
};

struct NamedStatistics {
  std::uint64_t submitted = 0;   ///< operations of this rank
  std::uint64_t by_number = 0;   ///< of these, those whose name and request were known
  std::uint64_t calls = 0;       ///< collectives that they became
  std::uint64_t notes_sent = 0;  ///< messages for agreeing
  std::uint64_t note_bytes = 0;  ///< of these messages
};

}  // namespace lockstep
