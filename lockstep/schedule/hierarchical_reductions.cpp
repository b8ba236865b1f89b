// hierarchical: reductions on several hosts, in each of which ranks share memory. A host's ranks add up inside first,
// so that between hosts goes what there is the least of. How pieces follow each other is said in two_level.h.
//
// The buffer is cut into slices (hosts.h). An all_reduce of two hosts with two ranks each:
//
//                       slice 0   slice 1      own: of each piece of its slice, adds up what the ranks of its host
//   host 0   rank 0       own       .               have, and sends that sum to the slice's owner on the other host;
//            rank 1        .       own              adds the one that comes from there, and writes the result to all
//   host 1   rank 2       own       .               ranks of its host
//            rank 3        .       own
//
// On two hosts both owners add both sums, in the same order, and n bytes cross the network each way. On H hosts each
// of a slice's owners adds up one H-th of every piece, whose sums the others send it, and sends the result back:
// 2(H-1)/H n bytes each way, the least there can be, in two hops.
//
// A reduce_scatter: of each block, one rank of every other host adds up what its host has, and sends it to the block's
// rank, which adds up all: (H-1)/H n bytes. A reduce: the slices' owners pass their sums on from host to host, ending
// on the root's: n bytes over each link.
//
// Halves are rounded once on each host and once more; in a reduce once more for each host that a sum passes. So are
// elements that cross in fewer bits than they have (Call::narrow_wire), where all ranks hold what crossed: also a rank
// that adds up itself takes its own sum, or its result, back from where it was sent.
// Source: Karonis et al. 2000 (hierarchies); Rabenseifner 2004 (reduce-scatter and all-gather), here with direct
// messages.
#include <algorithm>
#include <span>
#include <vector>

#include "lockstep/schedule/algorithms.h"
#include "lockstep/schedule/two_level.h"

namespace lockstep::schedule {
namespace {

class AllReduce final : public TwoLevelOfSlices {
 public:
  explicit AllReduce(const Call& call) : TwoLevelOfSlices(call, messages(Hosts(call).count())) {
    const auto others = static_cast<std::size_t>(hosts_.count() - 1);
    if (!hosts_.owns_one()) return;
    landings_ = has_two_hosts() ? piece_ : share({0, piece_}, 0).count * others;
    take_scratch(landings_);
    take_wire(landings_ + piece_);
  }

 private:
  struct UnderWay {
    Posted sums_in, sums_out, results;
  };

  static int messages(int hosts) { return hosts > 2 ? hosts : 1; }
  bool has_two_hosts() const { return hosts_.count() == 2; }
  /// What the owner on `host` adds up of a piece, from its begin.
  Range share(const Range& piece, int host) const {
    return has_two_hosts() ? Range{0, piece.count} : chunk_of(piece.count, host, hosts_.count());
  }

  /// Where among the landings the sum of another host arrives.
  std::size_t landing(std::size_t turn, int host) const {
    if (has_two_hosts()) return 0;
    const auto number = static_cast<std::size_t>(host > hosts_.mine ? host - 1 : host);
    return number * share(own_part(turn), hosts_.mine).count;
  }
  Place landing_place(std::size_t turn, int host) const { return at(scratch(turn), landing(turn, host)); }
  Place landing_room(std::size_t turn, int host) const { return at(wire(turn), landing(turn, host)); }
  /// For the whole piece: what is sent of this host's sum, and later the results.
  Place room(std::size_t turn, std::size_t offset) const { return at(wire(turn), landings_ + offset); }
  /// Where this host's sum of the piece is, until it is over: no copy is made of a single rank's.
  Place host_sum(std::size_t turn) const {
    const std::size_t begin = own_part(turn).begin;
    return inside_ == Inside::alone ? input_at(call_, begin) : output_at(call_, begin);
  }
  void fill(std::size_t turn) override { fill_slices(turn); }

  void begin(std::size_t turn) override {
    const Range piece = own_part(turn);
    if (piece.count == 0 || hosts_.count() == 1) return;
    const Place mine = host_sum(turn);
    if (inside_ != Inside::alone) steps_.reduce(contributions(turn), std::span(&mine, 1), piece.count, false);
    UnderWay& way = under_way_.of(turn) = {};
    const std::size_t received = share(piece, hosts_.mine).count;
    for (int host = 0; host < hosts_.count(); ++host) {
      if (host == hosts_.mine) continue;
      const Range sent = share(piece, host);
      if (received > 0) {
        const Place place = arriving(landing_place(turn, host), landing_room(turn, host));
        way.sums_in.push_back(steps_.receive(peer(host), place, received));
      }
      if (sent.count > 0) {
        const Place place = leaving(at(mine, sent.begin), room(turn, sent.begin), sent.count);
        way.sums_out.push_back(steps_.send(peer(host), place, sent.count));
      }
    }
  }

  /// Adds up the hosts' sums of this rank's share.
  void add_up(std::size_t turn) {
    UnderWay& way = under_way_.of(turn);
    wait_for(steps_, way.sums_in);
    // Results come to be where sums may still be on their way out.
    wait_for(steps_, way.sums_out);
    const Range mine = share(own_part(turn), hosts_.mine);
    if (mine.count == 0) return;
    std::vector<Place> sums;
    for (int host = 0; host < hosts_.count(); ++host) {
      if (host == hosts_.mine) {
        sums.push_back(own_sum(turn, mine));
      } else {
        sums.push_back(landing_place(turn, host));
        arrived(landing_room(turn, host), sums.back(), mine.count);
      }
    }
    auto places = results(turn, mine.begin);
    const bool crosses = call_.narrow_wire && !has_two_hosts();
    steps_.reduce(sums, crosses ? std::span(places).first(1) : std::span(places), mine.count, true);
    if (!crosses) return;
    const Place sent = leaving(places[0], room(turn, mine.begin), mine.count);
    for (const Place& place : places) arrived(sent, place, mine.count);
  }

  /// This host's sum as it is added up: on two hosts both add up both, as they crossed.
  Place own_sum(std::size_t turn, const Range& mine) {
    const bool has_crossed = call_.narrow_wire && has_two_hosts();
    if (!has_crossed) return at(host_sum(turn), mine.begin);
    const Place sum = output_at(call_, own_part(turn).begin + mine.begin);
    arrived(room(turn, mine.begin), sum, mine.count);
    return sum;
  }

  /// On three hosts and more, this rank's share goes to the others as theirs come.
  void go_on(std::size_t turn) override {
    const Range piece = own_part(turn);
    if (piece.count == 0 || hosts_.count() < 3) return;
    add_up(turn);
    UnderWay& way = under_way_.of(turn);
    const Range mine = share(piece, hosts_.mine);
    for (int host = 0; host < hosts_.count(); ++host) {
      if (host == hosts_.mine) continue;
      const Range theirs = share(piece, host);
      if (theirs.count > 0) {
        const Place place = output_at(call_, piece.begin + theirs.begin);
        way.results.push_back(
            steps_.receive(peer(host), arriving(place, room(turn, theirs.begin)), theirs.count));
      }
      if (mine.count > 0) {
        const Place place = output_at(call_, piece.begin + mine.begin);
        way.results.push_back(steps_.send(peer(host), arriving(place, room(turn, mine.begin)), mine.count));
      }
    }
  }

  void end(std::size_t turn) override {
    const Range piece = own_part(turn);
    if (piece.count == 0) return;
    if (hosts_.count() == 1) return steps_.reduce(contributions(turn), results(turn, 0), piece.count, true);
    if (has_two_hosts()) return add_up(turn);
    wait_for(steps_, under_way_.of(turn).results);
    for (int host = 0; host < hosts_.count(); ++host) {
      if (host == hosts_.mine) continue;
      const Range theirs = share(piece, host);
      const auto places = results(turn, theirs.begin);
      arrived(room(turn, theirs.begin), places[0], theirs.count);
      for (const Place& other : std::span(places).subspan(1)) steps_.copy(places[0], other, theirs.count);
    }
  }

  void collect(std::size_t turn) override { collect_slices(turn); }

  std::size_t landings_ = 0;  ///< elements: room for the sums of other hosts
  PerPiece<UnderWay> under_way_;
};

/// Hosts pass sums on to the one before them, counted from the root's.
class Reduce final : public TwoLevelOfSlices {
 public:
  explicit Reduce(const Call& call) : TwoLevelOfSlices(call), chain_(hosts_, call.root) {
    if (!hosts_.owns_one()) return;
    take_scratch(2 * piece_);
    take_wire(2 * piece_);
  }

 private:
  struct UnderWay {
    Posted in, out;
  };

  Place landing(std::size_t turn) const { return scratch(turn); }
  Place passed_on(std::size_t turn) const { return at(scratch(turn), piece_); }
  Place landing_room(std::size_t turn) const { return wire(turn); }
  Place room(std::size_t turn) const { return at(wire(turn), piece_); }

  void fill(std::size_t turn) override { fill_slices(turn); }

  void begin(std::size_t turn) override {
    const Range piece = own_part(turn);
    if (piece.count == 0) return;
    UnderWay& way = under_way_.of(turn) = {};
    if (!chain_.is_last()) {
      const Place place = arriving(landing(turn), landing_room(turn));
      way.in.push_back(steps_.receive(peer(chain_.after()), place, piece.count));
    } else if (!chain_.is_first()) {
      Place sum = input_at(call_, piece.begin);
      if (inside_ != Inside::alone) {
        sum = passed_on(turn);
        steps_.reduce(contributions(turn), std::span(&sum, 1), piece.count, false);
      }
      sum = leaving(sum, room(turn), piece.count);
      way.out.push_back(steps_.send(peer(chain_.before()), sum, piece.count));
    }
  }

  void go_on(std::size_t turn) override {
    const Range piece = own_part(turn);
    if (piece.count == 0 || (chain_.is_last() && !chain_.is_first())) return;
    UnderWay& way = under_way_.of(turn);
    wait_for(steps_, way.in);
    auto sums = contributions(turn);
    if (!chain_.is_last()) {
      sums.push_back(landing(turn));
      arrived(landing_room(turn), landing(turn), piece.count);
    }
    Place sum = passed_on(turn);
    if (chain_.is_first()) {
      const bool is_for_staging = inside_ == Inside::staged && call_.rank != call_.root;
      sum = is_for_staging ? staging(call_.rank, turn, hosts_.local)
                           : Place{Space::output, call_.root, piece.begin};
    }
    steps_.reduce(sums, std::span(&sum, 1), piece.count, chain_.is_first());
    if (chain_.is_first()) return;
    sum = leaving(sum, room(turn), piece.count);
    way.out.push_back(steps_.send(peer(chain_.before()), sum, piece.count));
  }

  void end(std::size_t turn) override {
    if (own_part(turn).count > 0) wait_for(steps_, under_way_.of(turn).out);
  }

  void collect(std::size_t turn) override {
    if (call_.rank == call_.root) collect_slices(turn);
  }

  const HostChain chain_;
  PerPiece<UnderWay> under_way_;
};

class ReduceScatter final : public TwoLevel {
 public:
  explicit ReduceScatter(const Call& call)
      : TwoLevel(call, largest_block(call), call.ranks), added_up_for_(hosts_.partners_of(call.rank)) {
    const auto others = static_cast<std::size_t>(hosts_.count() - 1);
    take_scratch((others + added_up_for_.size()) * piece_);
    take_wire((others + added_up_for_.size()) * piece_);
  }

 private:
  struct UnderWay {
    Posted in, out;
  };

  Range part(std::size_t turn, int rank) const { return piece_of(block_of(call_, rank), turn); }
  /// Scratch memory and the wire have one room for the sum of each other host, and one for each block that is added up
  /// here for another.
  std::size_t landing(int host) const {
    return static_cast<std::size_t>(host > hosts_.mine ? host - 1 : host) * piece_;
  }
  /// What this host has of the piece of `rank`'s block.
  std::vector<Place> contributions(std::size_t turn, int rank) const {
    std::vector<Place> places;
    for (const int each : hosts_.here()) {
      const bool is_staged = inside_ == Inside::staged && each != call_.rank;
      places.push_back(is_staged ? staging(each, turn, rank)
                                 : Place{Space::input, each, part(turn, rank).begin});
    }
    return places;
  }

  void fill(std::size_t turn) override {
    for (int rank = 0; rank < call_.ranks; ++rank) {
      const bool is_own = !hosts_.is_here(rank) && hosts_.partner(hosts_.mine, rank) == call_.rank;
      if (rank == call_.rank || is_own) continue;
      const Range range = part(turn, rank);
      steps_.copy(input_at(call_, range.begin), staging(call_.rank, turn, rank), range.count);
    }
  }

  void begin(std::size_t turn) override {
    UnderWay& way = under_way_.of(turn) = {};
    const Range mine = part(turn, call_.rank);
    for (int host = 0; host < hosts_.count() && mine.count > 0; ++host) {
      if (host == hosts_.mine) continue;
      const Place place = arriving(at(scratch(turn), landing(host)), at(wire(turn), landing(host)));
      way.in.push_back(steps_.receive(hosts_.partner(host, call_.rank), place, mine.count));
    }
    auto room = static_cast<std::size_t>(hosts_.count() - 1) * piece_;
    for (const int rank : added_up_for_) {
      const Range theirs = part(turn, rank);
      Place sum = at(scratch(turn), room);
      const Place narrowed = at(wire(turn), room);
      room += piece_;
      if (theirs.count == 0) continue;
      if (inside_ == Inside::alone) {
        sum = input_at(call_, theirs.begin);
      } else {
        steps_.reduce(contributions(turn, rank), std::span(&sum, 1), theirs.count, false);
      }
      way.out.push_back(steps_.send(rank, leaving(sum, narrowed, theirs.count), theirs.count));
    }
  }

  void end(std::size_t turn) override {
    UnderWay& way = under_way_.of(turn);
    wait_for(steps_, way.in);
    wait_for(steps_, way.out);
    const Range mine = part(turn, call_.rank);
    std::vector<Place> sums;
    for (int host = 0; host < hosts_.count(); ++host) {
      if (host != hosts_.mine) {
        sums.push_back(at(scratch(turn), landing(host)));
        arrived(at(wire(turn), landing(host)), sums.back(), mine.count);
      } else {
        const auto here = contributions(turn, call_.rank);
        sums.insert(sums.end(), here.begin(), here.end());
      }
    }
    const Place result = output_at(call_, mine.begin - block_of(call_, call_.rank).begin);
    steps_.reduce(sums, std::span(&result, 1), mine.count, true);
  }

  const std::vector<int> added_up_for_;  ///< ranks of other hosts, whose blocks this one adds up here
  PerPiece<UnderWay> under_way_;
};

}  // namespace

Schedule hierarchical_all_reduce(const Call& call) { return AllReduce(call).schedule(); }
Schedule hierarchical_reduce(const Call& call) { return Reduce(call).schedule(); }
Schedule hierarchical_reduce_scatter(const Call& call) { return ReduceScatter(call).schedule(); }

}  // namespace lockstep::schedule
