// Copies between the caches of two cores. A copy waits for lines of the other core to arrive, or for its own
// to be given up there; a copy in one direction and one in the other wait less together than one after the
// other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernel {

struct CopyTask {
  std::byte* destination = nullptr;
  const std::byte* source = nullptr;
  std::size_t bytes = 0;
};

/// Does both, a few cache lines of each in turn. REQUIRES: no destination overlaps another buffer of the two.
void copy_both(const CopyTask& one, const CopyTask& other);

/// Copies past the caches, where this machine can. What is stored afterwards is seen after it.
void copy_past_caches(std::byte* destination, const std::byte* source, std::size_t bytes);

/// Whether copies for other cores are better made past the caches: found out by how long plain ones take.
/// Where cores share a cache, a plain copy into memory that another has read long ago takes 20 to 90 ns a
/// KiB, and the other reads it from there. Where they do not, the copy takes 250 to 550 (AMD EPYC), and past
/// the caches 60. Which one holds may change: virtual machines are moved. One rank's choice is nobody else's.
class CrossingCopies {
 public:
  CrossingCopies();
  /// Says whether copies past the caches may be quicker at all, which they are on AMD's processors.
  explicit CrossingCopies(bool can_be_quicker) : can_(can_be_quicker) {}
  /// Whether to make the next one, of so many bytes, past the caches.
  bool next_goes_past_caches(std::size_t bytes);
  bool go_past_caches() const { return plain_until_next_ > 0; }
  /// Makes one in the way that is better, and tells itself how long it took.
  void copy(std::byte* destination, const std::byte* source, std::size_t bytes);
  /// A plain one took so long, or one along with another copy, together.
  void plain_took(std::size_t bytes, std::uint64_t ns);

  /// Shorter ones say nothing: too much else is in their time.
  static constexpr std::size_t least_told_bytes = 12 * 1024;
  /// Shorter ones are plain: they are on their way before it matters.
  static constexpr std::size_t least_bytes = 2 * 1024;

 private:
  static constexpr std::uint64_t slow_ns_per_kib = 110;
  static constexpr int slow_in_a_row = 2;
  static constexpr int until_next_plain = 64;  // copies, after which a plain one is tried again
  static constexpr unsigned timed_of = 4;  // copy() reads the clock for one of so many, unless it was slow

  bool can_;
  int slow_ = 0;
  int plain_until_next_ = 0;
  unsigned plain_ = 0;  // that copy() has made
};

/// Whether that of copy_both() holds.
bool are_independent(const CopyTask& one, const CopyTask& other);

}  // namespace lockstep::kernel
