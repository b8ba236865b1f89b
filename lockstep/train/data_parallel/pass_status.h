// What ranks tell each other of a backward pass beside their gradients: one all_reduce at its end, in which all
// meet, and which sets a bit that any of them has set.
//
//   word 0    bit 0  some gradients are missing    bit 1  some are not finite
//   word 1    a digest and its complement: a bit is set in both only where ranks have different ones
//   word 2 …  parameter by parameter: somebody has used it
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

class PassStatus {
 public:
  /// Nothing is said yet. `parameters`: of so many it is said whether they are used; 0 if it is not.
  void begin(std::size_t parameters) {
    says_who_is_used_ = parameters > 0;
    words_.assign(first_used / word_bits + (parameters + word_bits - 1) / word_bits, 0);
  }

  void note_missing() { set(missing); }
  void note_non_finite() { set(non_finite); }
  /// Of something in which all agree that say so.
  void note_digest(std::uint32_t digest) {
    words_[digests] |= digest | std::uint64_t{~digest} << digest_bits;
  }
  void note_use(std::size_t parameter) {
    if (says_who_is_used_) set(first_used + parameter);
  }

  /// For an all_reduce with bor: then it is what any rank has noted.
  std::span<std::uint64_t> words() { return words_; }

  bool misses_some() const { return has(missing); }
  bool agrees() const {
    const std::uint64_t said = words_[digests];
    return (said & said >> digest_bits & UINT32_MAX) == 0;
  }
  bool is_non_finite() const { return has(non_finite); }
  /// True where nobody says.
  bool is_used(std::size_t parameter) const { return !says_who_is_used_ || has(first_used + parameter); }

 private:
  static constexpr std::size_t word_bits = 64;
  static constexpr std::size_t digest_bits = 32;
  static constexpr std::size_t missing = 0, non_finite = 1;  // bits
  static constexpr std::size_t digests = 1;                  // a word
  static constexpr std::size_t first_used = 2 * word_bits;

  void set(std::size_t bit) { words_[bit / word_bits] |= std::uint64_t{1} << bit % word_bits; }
  bool has(std::size_t bit) const { return (words_[bit / word_bits] >> bit % word_bits & 1) != 0; }

  std::vector<std::uint64_t> words_;
  bool says_who_is_used_ = false;
};

}  // namespace lockstep
