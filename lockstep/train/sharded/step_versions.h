// Whether parameters that several ranks change together are whole: a rank that is killed in the middle of a
// step leaves some of the step before and some not, and nobody may take them for a model.
#pragma once

#include <cstdint>

#include "lockstep/group/shared_memory.h"

namespace lockstep {

/// What each rank has begun and ended, where all ranks that change the same memory see it; ranks that share
/// none see their own.
class StepVersions {
 public:
  /// Collective. `is_shared`: the ranks change the same memory. Throws what SharedBlock does.
  StepVersions(const Group& group, bool is_shared);

  /// This rank begins to change its part. Throws Error{aborted} if one of them has given up.
  void begin();
  void end();
  /// No rank begins any more: this one will take no part.
  void give_up() noexcept;

  /// Whether every rank has ended what it began, and as much as the others. After give_up(), or between two
  /// meetings of the ranks outside of begin() and end(), the answer stays true.
  bool are_whole() const;

 private:
  struct alignas(64) Row {
    std::uint64_t begun = 0, ended = 0;
    std::uint64_t has_given_up = 0;
  };
  Row& row(std::size_t number) const;
  bool somebody_has_given_up() const;

  SharedBlock block_;
  const std::size_t mine_;
  const std::size_t first_, end_;  ///< of the rows that are looked at
};

}  // namespace lockstep
