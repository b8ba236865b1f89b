// engine: several hosts, between which an engine of its own (MPI) carries whole collectives out, as its makers and a
// cluster's people have tuned it. It knows the ranks; what it does on the way is its own.
//
// All but one are the engine's collective among all ranks. An all_reduce of several ranks on each host is two-level
// (two_level.h): a host's ranks add up inside, each for a slice, pieces of which the slice's owners exchange:
//
//                       slice 0   slice 1
//   host 0   rank 0       own       .          own: adds up what the ranks of its host have of a piece of its slice;
//            rank 1        .       own              the engine's all_reduce among the slice's owners; writes the
//   host 1   rank 2       own       .               result to all ranks of its host
//            rank 3        .       own
//
// That takes hosts with as many ranks each. An average is scaled at the end. Source: Karonis et al. 2000.
#include <algorithm>
#include <span>
#include <vector>

#include "lockstep/schedule/algorithms.h"
#include "lockstep/schedule/two_level.h"

namespace lockstep::schedule {
namespace {

// Of buffers without blocks; an engine may count no further than 2^31.
constexpr std::size_t most_at_once = std::size_t{1} << 30;

class AllReduceByEngine final : public TwoLevelOfSlices {
 public:
  explicit AllReduceByEngine(const Call& call) : TwoLevelOfSlices(call) {}

 private:
  void fill(std::size_t turn) override { fill_slices(turn); }
  void collect(std::size_t turn) override { collect_slices(turn); }

  void begin(std::size_t turn) override {
    const Range piece = own_part(turn);
    if (piece.count == 0) return;
    const Place mine = output_at(call_, piece.begin);
    steps_.reduce(contributions(turn), std::span(&mine, 1), piece.count, false);
    under_way_.of(turn) =
        steps_.exchange(Operation::all_reduce, Among::slice_owners, mine, mine, piece.count);
  }
  void end(std::size_t turn) override {
    const Range piece = own_part(turn);
    if (piece.count == 0) return;
    steps_.wait(under_way_.of(turn));
    const Place mine = output_at(call_, piece.begin);
    steps_.reduce(std::span(&mine, 1), results(turn, 0), piece.count, true);
  }

  PerPiece<Schedule::StepIndex> under_way_;
};

bool have_as_many_ranks(const Hosts& hosts) {
  return std::ranges::all_of(hosts.ranks,
                             [&](const auto& there) { return there.size() == hosts.ranks[0].size(); });
}

}  // namespace

Schedule engine_collective(const Call& call) {
  Schedule steps;
  const bool has_blocks = call.operation != Operation::all_reduce && call.operation != Operation::reduce &&
                          call.operation != Operation::broadcast;
  const auto parts = segments_of({0, call.elements}, has_blocks ? SIZE_MAX : most_at_once);
  if (parts.size() < 2) {
    steps.wait(
        steps.exchange(call.operation, Among::all, input_at(call, 0), output_at(call, 0), call.elements));
  } else {
    for (const Range part : parts) {
      steps.wait(steps.exchange(call.operation, Among::all, input_at(call, part.begin),
                                output_at(call, part.begin), part.count));
    }
  }
  const std::size_t elements = reduces(call.operation) ? output_elements(call) : 0;
  const Place result = output_at(call, 0);
  steps.reduce(std::span(&result, 1), std::span(&result, 1), elements, true);
  return steps;
}

Schedule engine_all_reduce(const Call& call) {
  const Hosts hosts(call);
  const bool is_two_level = hosts.count() > 1 && !hosts.is_alone() && have_as_many_ranks(hosts);
  return is_two_level ? AllReduceByEngine(call).schedule() : engine_collective(call);
}

}  // namespace lockstep::schedule
