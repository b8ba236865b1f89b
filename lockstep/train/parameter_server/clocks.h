// Who may read when: the clocks of workers, which tick with each push.
//
//   synchronous      nobody reads until all have pushed, and one update has their average
//   bounded by s     nobody reads who is more than s pushes ahead of the slowest
//   unbounded        anybody reads at any time
//
// Source: Ho et al. 2013, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server"; Li et al. 2014,
// "Scaling Distributed Machine Learning with the Parameter Server".
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "lockstep/rendezvous/view.h"

namespace lockstep::ps {

/// Decisions alone. Thread safety: none.
class Clocks {
 public:
  /// 0: synchronous; nullopt: unbounded.
  explicit Clocks(std::optional<int> staleness) : staleness_(staleness) {}

  /// Those of these lives that are new work from now on, those that are not among them have no say any more.
  void set_living(const std::vector<Life>& workers);
  /// It has nothing to do for now, and nobody waits for it; it works again.
  void rest(const Life& worker);
  void work(const Life& worker);
  /// For good.
  void leave(const Life& worker);
  /// The same without a word: it is not there any more, though its process may be.
  void drop(const Life& worker);

  /// Of who is no worker: synchronous, between two rounds.
  bool may_read(const Life& worker) const;
  /// Others wait for it.
  bool is_working(const Life& worker) const;
  /// One more push. In synchronous mode once between two updates.
  void push(const Life& worker);
  /// Synchronous: whether all that work have pushed, and somebody has. update() begins the next round.
  bool is_round_over() const;
  void update();

  /// That have not left. `ever`: some have been there.
  bool has_workers() const;
  bool had_leavers() const { return had_leavers_; }
  std::uint64_t clock_of(const Life& worker) const { return workers_.at(worker).clock; }
  /// Of those that work.
  std::uint64_t slowest() const;
  /// How many those are, and by how many pushes the first of them is ahead of the slowest.
  std::size_t working() const;
  std::uint64_t lead() const;

 private:
  struct Worker {
    std::uint64_t clock = 0;
    bool has_pushed = false, rests = false, has_left = false;
    bool counts() const { return !rests && !has_left; }
  };
  bool is_synchronous() const { return staleness_ == 0; }

  std::optional<int> staleness_;
  std::map<Life, Worker> workers_;
  std::uint64_t round_ = 0, furthest_ = 0;
  bool had_leavers_ = false, is_round_begun_ = false;
};

}  // namespace lockstep::ps
