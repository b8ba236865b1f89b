// What algorithms for several hosts have in common (hierarchical_*.cpp): ranks of a host meet in shared memory, what
// crosses to other hosts goes piece by piece, and while one piece is on its way the next ones are prepared.
//
// Inside a host, pieces are read out of the ranks' arenas and written there (as in arena.cpp), or go through staging
// memory (staged.cpp), or, where a host has one rank of the group, come from its own buffers. What is sent does not
// depend on that, so each host does what it can.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "lockstep/schedule/hosts.h"
#include "lockstep/schedule/messages.h"

namespace lockstep::schedule {

/// How a host's ranks reach each other's data.
enum class Inside { alone, arena, staged };

/// The turns of one rank: in each a piece is begun, one that was begun some turns before goes on, and an older one
/// ends. Derived classes say what that is. With staging memory all ranks of the host meet at each turn's begin.
class TwoLevel {
 public:
  TwoLevel(const TwoLevel&) = delete;
  TwoLevel& operator=(const TwoLevel&) = delete;
  virtual ~TwoLevel() = default;
  Schedule schedule();

 protected:
  /// `longest`: elements of what goes piece by piece. `rooms`: how many parts, each as long as a piece, a window of
  /// staging memory has to hold. `messages`: in how many a piece is sent. All are the same on all ranks.
  TwoLevel(const Call& call, std::size_t longest, int rooms, int messages = 1);

  /// Staging memory only: what others of the host need of this rank, before its turn.
  virtual void fill(std::size_t) {}
  virtual void begin(std::size_t turn) = 0;
  virtual void go_on(std::size_t) {}
  virtual void end(std::size_t turn) = 0;
  /// Staging memory only: what others of the host have brought, a turn after its end.
  virtual void collect(std::size_t) {}

  /// The turn's piece of `whole`; empty past its end.
  Range piece_of(const Range& whole, std::size_t turn) const;
  /// Room number `room` of a rank's window.
  Place staging(int rank, std::size_t turn, int room) const;
  /// Copies what is in this rank's output to its staging memory, or to the others' outputs.
  void hand_out(std::size_t position, std::size_t elements, std::size_t turn, int room);
  /// Scratch memory of so many elements for each piece under way.
  void take_scratch(std::size_t elements_each);
  Place scratch(std::size_t turn) const;

  // Elements cross to other hosts as they are, or, with Call::narrow_wire, by way of a room in Space::wire.
  /// Rooms for so many elements for each piece under way.
  void take_wire(std::size_t elements_each);
  Place wire(std::size_t turn) const;
  /// From where what is at `whole` is sent.
  Place leaving(Place whole, Place room, std::size_t elements);
  /// To where what is to be at `whole` is received; there it is after arrived().
  Place arriving(Place whole, Place room) const { return call_.narrow_wire ? room : whole; }
  void arrived(Place room, Place whole, std::size_t elements) {
    if (call_.narrow_wire) steps_.copy(room, whole, elements);
  }
  /// So many pieces are under way at once.
  static constexpr std::size_t most_under_way = 4;
  /// A T for each of them.
  template <class T>
  class PerPiece {
   public:
    T& of(std::size_t turn) { return all_[turn % most_under_way]; }

   private:
    std::array<T, most_under_way> all_;
  };

  const Call& call_;
  const Hosts hosts_;
  const Inside inside_;
  Schedule steps_;
  std::size_t piece_ = 1;  ///< elements, at most

 private:
  std::size_t turns_ = 0;
  std::size_t staged_elements_ = 0;
  Place scratch_, wire_;
  std::size_t scratch_each_ = 0, wire_each_ = 0;
};

/// Whole buffers, slice by slice.
class TwoLevelOfSlices : public TwoLevel {
 protected:
  explicit TwoLevelOfSlices(const Call& call, int messages = 1);

  /// What a turn has of a slice, as it lies in the user's buffers.
  Range part(std::size_t turn, int slice) const;
  /// This rank's piece. Empty where it owns no slice, or a shorter one.
  Range own_part(std::size_t turn) const;
  /// Who owns this rank's slice on `host`.
  int peer(int host) const { return hosts_.owner(host, hosts_.local); }
  /// Staging memory: fills the rooms of the slices that others own.
  void fill_slices(std::size_t turn);
  /// Copies what the others of this host have left in their windows, each in the room of its slice.
  void collect_slices(std::size_t turn);
  /// What this host has of this rank's piece, in the order of its ranks.
  std::vector<Place> contributions(std::size_t turn) const;
  /// Where a part of this rank's piece has to be in the end, if all ranks want it, `offset` elements from its begin.
  /// The first is this rank's output.
  std::vector<Place> results(std::size_t turn, std::size_t offset) const;
};

}  // namespace lockstep::schedule
