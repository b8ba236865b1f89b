// Ranks without a launcher: a program that was started once becomes many. What torch.multiprocessing.spawn is
// for, with what `lockstep run` does for its ranks: cores of their own, "[rank] " before their lines, a
// record of a failure, and nothing left behind.
//
//   int main() {
//     lockstep::spawn(4, [](int rank, double rate) { train(lockstep::init(), rate); }, 0.1);
//   }
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace lockstep {

struct SpawnOptions {
  int ranks = 0;
  bool pin = true;     ///< give each rank its own cores, where there are enough
  bool prefix = true;  ///< "[rank] " before each line that a rank prints
  /// Where a job that failed leaves its flight record; "none": nowhere. Default: LOCKSTEP_RECORD_DIR, or
  /// lockstep-records.
  std::optional<std::string> record_dir = {};
  /// false: spawn() returns when the ranks are being started, and the handle that it returns waits for them. The calling thread
  /// has to live until then: the ranks are ended with it.
  bool join = true;
};

/// Ranks that spawn() has started. Thread safety: one thread.
class SpawnedRanks {
 public:
  class Impl;
  explicit SpawnedRanks(std::unique_ptr<Impl> impl);
  SpawnedRanks(SpawnedRanks&&) noexcept;
  SpawnedRanks& operator=(SpawnedRanks&&) noexcept;
  /// Ends ranks that still run, as SIGTERM to `lockstep run` does, and waits for their end.
  ~SpawnedRanks();

  /// Waits until all have ended. Throws what spawn() does where one failed; again each time. No signal handler and no child of
  /// this process is touched but the one that looks after the ranks.
  void join();
  /// The same for so long at most. False: some still run.
  bool join_for(std::chrono::nanoseconds time);

 private:
  std::unique_ptr<Impl> impl_;
};

/// spawn() below, with options. Returns ranks that have ended unless options.join is false.
SpawnedRanks spawn(const SpawnOptions& options, const std::function<void(int rank)>& function);

/// Calls `function(rank, arguments...)` in `ranks` copies of this process, made by fork(2), and waits until
/// all have ended. A rank has what this process has, memory and open files, and a place in the environment,
/// so that init() in it joins the others. It ends when the function returns, whatever it returns: destructors
/// of static objects do not run in it. An exception is written to its stderr, and ends it with 1. If a rank
/// fails, the others are ended as by `lockstep run`; if this process dies, all are.
///
/// Throws Error, with nothing left behind: invalid_argument where ranks cannot be made of this process,
/// because it is a rank itself, is one of several that a launcher has started, has called init() before, or
/// has several threads, of which a copy would have only one; peer_lost when a rank failed: which one first
/// (peer()), how, and its last lines; aborted when a signal ended the job; system.
template <class Function, class... Arguments>
void spawn(int ranks, Function&& function, Arguments&&... arguments) {
  spawn(SpawnOptions{.ranks = ranks},
        std::function<void(int)>([&](int rank) { std::invoke(function, rank, arguments...); }));
}

}  // namespace lockstep
