// hierarchical: what only moves, on several hosts, in each of which ranks share memory; and the barrier. Each byte
// crosses to a host once, and is shared there. How pieces follow each other is said in two_level.h.
//
// A broadcast goes from host to host, beginning with the root's; each slice (hosts.h) by a rank of its own, which
// passes a piece on as soon as it is there. Three hosts with two ranks each, root 0:
//
//            slice 0           slice 1
//   rank 0   -> 2              .              rank 1 sends out of the root's memory
//   rank 1    .               -> 3
//   rank 2   <- 0, -> 4        .              ranks 2 and 3 show each other what has come
//   rank 3    .               <- 1, -> 5
//   rank 4   <- 2              .
//   rank 5    .               <- 3
//
// n bytes over each link, after as many pieces as there are hosts.
//
// In an all_gather, each rank sends its block to one rank of every other host, which shows it to the others: n bytes
// for each of a host's ranks and other host, in one hop. In a barrier, a host's ranks meet, then one of each host
// tells another, at distances that double, then all meet again. Source: Karonis et al. 2000; Hensgen, Finkel & Manber
// 1988 (dissemination).
#include <algorithm>
#include <vector>

#include "lockstep/schedule/algorithms.h"
#include "lockstep/schedule/two_level.h"

namespace lockstep::schedule {
namespace {

class Broadcast final : public TwoLevelOfSlices {
 public:
  explicit Broadcast(const Call& call) : TwoLevelOfSlices(call), chain_(hosts_, call.root) {}

 private:
  struct UnderWay {
    Posted in, out;
  };

  /// Only the root; all slices, since all others take them out of its window.
  void fill(std::size_t turn) override {
    for (int slice = 0; slice < hosts_.slices && call_.rank == call_.root; ++slice) {
      const Range range = part(turn, slice);
      steps_.copy(output_at(call_, range.begin), staging(call_.rank, turn, slice), range.count);
    }
  }

  /// On the root's host: where it is seen from here.
  Place at_root(std::size_t turn, int slice) const {
    if (inside_ == Inside::staged && call_.rank != call_.root) return staging(call_.root, turn, slice);
    return {Space::output, call_.root, part(turn, slice).begin};
  }
  void take_from_root(std::size_t turn) {
    for (int slice = 0; slice < hosts_.slices && call_.rank != call_.root; ++slice) {
      const Range range = part(turn, slice);
      steps_.copy(at_root(turn, slice), output_at(call_, range.begin), range.count);
    }
  }

  void begin(std::size_t turn) override {
    const Range piece = own_part(turn);
    UnderWay& way = under_way_.of(turn) = {};
    if (piece.count > 0 && !chain_.is_first())
      way.in.push_back(steps_.receive(peer(chain_.before()), output_at(call_, piece.begin), piece.count));
    if (piece.count > 0 && chain_.is_first() && !chain_.is_last())
      way.out.push_back(steps_.send(peer(chain_.after()), at_root(turn, hosts_.local), piece.count));
    if (chain_.is_first() && inside_ == Inside::arena) take_from_root(turn);
  }

  void go_on(std::size_t turn) override {
    const Range piece = own_part(turn);
    if (piece.count == 0 || chain_.is_first()) return;
    UnderWay& way = under_way_.of(turn);
    wait_for(steps_, way.in);
    if (!chain_.is_last())
      way.out.push_back(steps_.send(peer(chain_.after()), output_at(call_, piece.begin), piece.count));
    hand_out(piece.begin, piece.count, turn, hosts_.local);
  }

  void end(std::size_t turn) override { wait_for(steps_, under_way_.of(turn).out); }

  void collect(std::size_t turn) override {
    if (chain_.is_first()) {
      take_from_root(turn);
    } else {
      collect_slices(turn);
    }
  }

  const HostChain chain_;
  PerPiece<UnderWay> under_way_;
};

class AllGather final : public TwoLevel {
 public:
  explicit AllGather(const Call& call)
      : TwoLevel(call, largest_block(call), rooms(Hosts(call))), brought_(hosts_.partners_of(call.rank)) {}

 private:
  /// A rank's window has its own block, and then those that it brings from other hosts.
  static int rooms(const Hosts& hosts) {
    std::size_t most = 0;
    for (const auto& there : hosts.ranks) {
      for (const int rank : there) most = std::max(most, hosts.partners_of(rank).size());
    }
    return static_cast<int>(most) + 1;
  }

  Range part(std::size_t turn, int rank) const { return piece_of(block_of(call_, rank), turn); }
  Place own_input(std::size_t turn) const {
    return input_at(call_, part(turn, call_.rank).begin - block_of(call_, call_.rank).begin);
  }

  void fill(std::size_t turn) override {
    steps_.copy(own_input(turn), staging(call_.rank, turn, 0), part(turn, call_.rank).count);
  }

  void begin(std::size_t turn) override {
    Posted& under_way = under_way_.of(turn) = {};
    for (const int rank : brought_) {
      const Range theirs = part(turn, rank);
      if (theirs.count > 0)
        under_way.push_back(steps_.receive(rank, output_at(call_, theirs.begin), theirs.count));
    }
    const Range mine = part(turn, call_.rank);
    for (int host = 0; host < hosts_.count() && mine.count > 0; ++host) {
      if (host != hosts_.mine)
        under_way.push_back(steps_.send(hosts_.partner(host, call_.rank), own_input(turn), mine.count));
    }
    steps_.copy(own_input(turn), output_at(call_, mine.begin), mine.count);
    for (const int rank : hosts_.here()) {
      if (inside_ != Inside::arena || rank == call_.rank) continue;
      const Range theirs = part(turn, rank);
      steps_.copy({Space::input, rank, theirs.begin - block_of(call_, rank).begin},
                  output_at(call_, theirs.begin), theirs.count);
    }
  }

  void end(std::size_t turn) override {
    wait_for(steps_, under_way_.of(turn));
    int room = 0;
    for (const int rank : brought_) {
      const Range theirs = part(turn, rank);
      hand_out(theirs.begin, theirs.count, turn, ++room);
    }
  }

  void collect(std::size_t turn) override {
    for (const int rank : hosts_.here()) {
      if (rank == call_.rank) continue;
      int room = 0;
      const auto take = [&](int source) {
        const Range theirs = part(turn, source);
        steps_.copy(staging(rank, turn, room++), output_at(call_, theirs.begin), theirs.count);
      };
      take(rank);
      for (const int source : hosts_.partners_of(rank)) take(source);
    }
  }

  const std::vector<int> brought_;  ///< ranks of other hosts, whose blocks come by this one
  PerPiece<Posted> under_way_;
};

}  // namespace

Schedule hierarchical_broadcast(const Call& call) { return Broadcast(call).schedule(); }
Schedule hierarchical_all_gather(const Call& call) { return AllGather(call).schedule(); }

Schedule hierarchical_barrier(const Call& call) {
  Schedule steps;
  const Hosts hosts(call);
  if (!hosts.is_alone()) steps.wait_for_all();
  for (int distance = 1; distance < hosts.count() && hosts.local == 0; distance *= 2) {
    const auto first_of = [&](int host) { return hosts.owner(wrapped(host, hosts.count()), 0); };
    const auto receive = steps.receive(first_of(hosts.mine - distance), output_at(call, 0), 0);
    steps.wait(steps.send(first_of(hosts.mine + distance), output_at(call, 0), 0));
    steps.wait(receive);
  }
  if (!hosts.is_alone()) steps.wait_for_all();
  return steps;
}

}  // namespace lockstep::schedule
