// Who is in a job whose ranks may die, come back and go: a view, which has a number. All ranks see the same views in the same
// order.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// One life of a rank.
struct Life {
  int rank = 0;         ///< of the job, as its launcher calls it
  int incarnation = 0;  ///< how often that rank has been started again before
  friend auto operator<=>(const Life&,
                          const Life&) = default;  // NOLINT(modernize-use-nullptr): none is there
};

/// "2", and "2.1" of a rank that was started again once.
std::string to_text(const Life& life);

struct View {
  std::uint64_t number = 0;  ///< from 1, each one more than the one before
  /// Those who live, the ones that have been in the job longest first, and of these by rank: the first one has seen all that
  /// the others have.
  std::vector<Life> members = {};

  /// Where a life stands in `members`.
  std::optional<int> place_of(const Life& life) const;
  bool has(const Life& life) const { return place_of(life).has_value(); }
  /// In the order of `members`.
  std::vector<int> ranks() const;

  /// A line for each member after the number.
  std::string to_text() const;
  /// Throws Error{corrupt_data}.
  static View parse(const std::string& text);
  friend bool operator==(const View&, const View&) = default;
};

}  // namespace lockstep
