// Who drives named operations: a wait() for one of them drives those of all groups of this process, so that
// groups which overlap cannot wait for each other; while the program does other things, a thread does.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/engine/fair_mutex.h"
#include "lockstep/engine/named_set.h"

namespace lockstep {

/// Thread safe. One for each rank's world of named operations.
class NamedEngine {
 public:
  explicit NamedEngine(const NamedOptions& options) : options_(options) {}
  ~NamedEngine();
  NamedEngine(const NamedEngine&) = delete;
  NamedEngine& operator=(const NamedEngine&) = delete;

  const NamedOptions& options() const { return options_; }

  /// The set stays the engine's until the engine goes.
  NamedSet& add(const Group& group);

  /// Runs `call` under the lock. What it begins goes on in wait(), poll(), the thread, or after more such
  /// calls.
  std::shared_ptr<NamedOperation> begin(const std::function<std::shared_ptr<NamedOperation>()>& call);
  /// Drives everything once, unless another thread does so. Returns whether the operation is over.
  bool poll(const NamedOperation& operation);
  /// Drives everything until the operation is over, or for `at_most`, and then returns false.
  bool wait(NamedSet& set, const NamedOperation& operation, std::chrono::nanoseconds at_most);
  /// Closes the set's group in this rank's name.
  void abandon(NamedSet& set, const NamedOperation& operation) noexcept;
  NamedStatistics statistics(const NamedSet& set);

 private:
  bool advance() noexcept;
  void serve();
  bool drive();

  NamedOptions options_;
  FairMutex mutex_;
  std::vector<std::unique_ptr<NamedSet>> sets_;
  int begun_ = 0;                           // operations
  std::atomic<bool> is_shared_ = false;     // between several threads or groups
  std::atomic<int> waiting_ = 0;            // threads in wait()
  std::atomic<bool> is_under_way_ = false;  // some operation is
  // The thread:
  std::atomic<std::uint32_t> calls_ = 0;  // that end its sleep
  std::atomic<bool> is_asleep_ = false, stops_ = false;
  std::thread thread_;
};

}  // namespace lockstep
