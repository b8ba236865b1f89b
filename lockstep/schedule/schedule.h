// A collective is a schedule: for each rank a list of steps, data and not control flow. Because it is data
// the same list is executed (execute/), proven (verify.h), drawn (draw.h) and counted (cost.h); no collective
// has a path of its own.
//
// Vocabulary
//   place      a position in one rank's memory: space, rank, element offset
//   send       start sending elements to a peer; the source stays untouched until waited for
//   receive    start receiving; the destination stays untouched until waited for. The messages between two
//              ranks are matched in order; both sides name the same count
//   wait       an earlier send, receive or exchange of this rank is complete
//   copy       one source to one destination; into Space::wire it rounds, out of it it makes whole elements again
//   reduce     p sources, element by element in the order given, into one or several destinations
//   arrive     this rank has reached a stage; all it did before is visible to whoever awaits the stage
//   await      every rank of this rank's host has arrived at a stage
//   exchange   start a collective that an engine between hosts (MPI) carries out whole, among all ranks or among those
//              that own one slice (hosts.h); source and destination stay untouched until waited for. All of them start
//              their exchanges in one order
// Other ranks' places are those of ranks of the same host; between hosts there are messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/schedule/call.h"

namespace lockstep {

enum class Space : std::uint8_t {
  input,    ///< what the user passed in, never written; the same memory as output where called in place
  output,   ///< what the user gets; broadcast's only buffer
  scratch,  ///< this rank's own temporary memory, of Schedule::scratch_elements
  slot,     ///< this rank's small cell in shared memory (see one_shot.cpp); readable by all ranks of the host
  staging,  ///< this rank's larger shared memory (see staged.cpp), in Call's windows; readable by all
  wire,  ///< this rank's own, of Schedule::wire_elements: elements as they cross to other hosts (Call::narrow_wire)
};
inline constexpr int space_count = 6;

struct Place {
  Space space = Space::output;
  int rank = 0;
  std::size_t offset = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

inline Place at(Place base, std::size_t offset) { return {base.space, base.rank, base.offset + offset}; }

/// Where this rank's buffers lie.
inline Place input_at(const Call& call, std::size_t offset = 0) { return {Space::input, call.rank, offset}; }
inline Place output_at(const Call& call, std::size_t offset = 0) {
  return {Space::output, call.rank, offset};
}

enum class StepKind : std::uint8_t { send, receive, wait, copy, reduce, arrive, await, exchange };

/// Who takes part in an exchange.
enum class Among : std::uint32_t { all, slice_owners };

struct Step {
  StepKind kind = StepKind::copy;
  bool last_reduction = false;  ///< reduce: the result is complete; an average is scaled here
  std::uint16_t source_count = 0;
  std::uint16_t destination_count = 0;
  Operation operation = Operation::barrier;  ///< exchange: which collective; else as it is here
  std::uint32_t first_place = 0;             ///< in the schedule's places: sources, then destinations
  /// send, receive: the peer's rank. wait: index of the step waited for. arrive, await: the stage, from 1. exchange:
  /// an Among.
  std::uint32_t target = 0;
  std::size_t elements = 0;
  friend bool operator==(const Step&, const Step&) = default;
};

class Schedule {
 public:
  using StepIndex = std::uint32_t;

  StepIndex send(int peer, Place source, std::size_t elements);
  StepIndex receive(int peer, Place destination, std::size_t elements);
  /// `elements`: of an all_reduce among the owners of a slice; among all it is the call's own collective.
  StepIndex exchange(Operation operation, Among among, Place source, Place destination, std::size_t elements);
  void wait(StepIndex started);
  void copy(Place source, Place destination, std::size_t elements);
  void reduce(std::span<const Place> sources, std::span<const Place> destinations, std::size_t elements,
              bool last_reduction);
  /// Arrives at the next stage and awaits all ranks of the host there.
  void wait_for_all();
  /// Only arrives there: whoever awaits it knows that this rank is done with what it did before.
  void arrive();
  /// Temporary memory; returns where it begins.
  Place scratch(int rank, std::size_t elements);
  /// The same of elements as they cross to other hosts.
  Place wire(int rank, std::size_t elements);

  const std::vector<Step>& steps() const { return steps_; }
  std::span<const Place> sources(const Step& step) const {
    return std::span(places_).subspan(step.first_place, step.source_count);
  }
  std::span<const Place> destinations(const Step& step) const {
    return std::span(places_).subspan(step.first_place + step.source_count, step.destination_count);
  }
  std::size_t scratch_elements() const { return scratch_elements_; }
  std::size_t wire_elements() const { return wire_elements_; }
  /// Whether any step talks to a peer by message.
  bool uses_channels() const { return uses_channels_; }
  bool uses_exchange() const { return uses_exchange_; }
  /// Whether ranks arrive anywhere.
  bool has_stages() const { return stages_ > 0; }
  /// How many pieces go through staging memory (see staged.cpp), and the elements there of the longest, which
  /// are the same for every rank; 0: it is not used.
  std::size_t staged_pieces() const { return staged_pieces_; }
  std::size_t staged_elements() const { return staged_elements_; }
  void set_staged(std::size_t pieces, std::size_t elements) {
    staged_pieces_ = pieces;
    staged_elements_ = elements;
  }
  /// Whether its first two steps, arriving and awaiting all, may be left out by a rank that knows without
  /// them what all call: what comes before the next wait touches only this rank's own memory (see
  /// staged.cpp).
  bool needs_no_first_wait() const { return staged_pieces_ > 0; }
  /// Whether it uses what a group has but once; such works of one group run one after another.
  bool is_exclusive() const { return uses_channels_ || uses_exchange_ || staged_pieces_ > 0; }

 private:
  friend struct ScheduleMutation;  // of tests that break schedules on purpose
  StepIndex add(Step step, std::span<const Place> sources, std::span<const Place> destinations);

  std::vector<Step> steps_;
  std::vector<Place> places_;
  std::size_t scratch_elements_ = 0, wire_elements_ = 0;
  std::uint32_t stages_ = 0;
  std::size_t staged_pieces_ = 0, staged_elements_ = 0;
  bool uses_channels_ = false, uses_exchange_ = false;
};

/// One line a step, e.g. "reduce output[0]+0, output[1]+0 -> output[0]+0 x 32 (last)".
std::string to_string(const Schedule& schedule);
std::string to_string(const Place& place);

/// An algorithm: pure, the same answer for the same Call, always.
using Algorithm = Schedule (*)(const Call& call);

}  // namespace lockstep
