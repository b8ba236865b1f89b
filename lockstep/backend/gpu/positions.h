// Where the ranks of a group are in their calls on GPUs, of which engines tell nobody who is missing: a rank that waits long says so in
// the store, and one that has nothing to do says what it has ended; at the deadline others read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/signature.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/transport/members.h"

namespace lockstep {

/// Thread safety: as the store's.
class GpuPositions {
 public:
  /// Borrows `store`, which is of this GPU's calls alone, and `members`.
  GpuPositions(Store& store, const Members& members) : store_(store), members_(members) {}

  /// This rank waits in collective `number`. Where the store is gone, the others know less.
  void tell_waiting(std::uint64_t number, const Signature& called) { tell({number, called}); }
  /// It waits in none, and has ended all before `number`.
  void tell_through(std::uint64_t number) { tell({number, {.elements = through}}); }
  /// Forgets what this rank has told. Throws as Store::erase().
  void erase() { (void)store_.erase(key_of(members_.rank())); }

  /// World ranks that have not come to the collective, by what they have told. Throws Error: mismatch where a rank called something
  /// else as this number; what the store throws.
  std::vector<int> missing_in(std::uint64_t number, const Signature& called) const;

 private:
  struct Position {
    std::uint64_t number = 0;
    Signature called;
  };
  /// In place of elements.
  static constexpr std::uint64_t through = ~std::uint64_t{0};

  static std::string key_of(int rank) { return "at/" + std::to_string(rank); }
  void tell(const Position& position);
  std::optional<Position> of(int rank) const;

  Store& store_;
  const Members& members_;
};

}  // namespace lockstep
