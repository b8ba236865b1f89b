// Who does the work? Whoever comes by: a wait, a test, a hook of autograd calling poll(). Each moves every
// group's works on, so that overlapping groups cannot wait for each other. A thread joins in only for groups
// that reach other hosts, where data keeps arriving while nobody looks; while somebody waits, that one looks,
// and the thread keeps out of the way.
#pragma once

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/wait.h"
#include "lockstep/memory/control_page.h"

namespace lockstep {

/// The works of one group. All calls under the progress lock; none throws.
class Engine {
 public:
  virtual ~Engine() = default;
  /// Takes all steps that can be taken; true if there were any.
  virtual bool advance() = 0;
  virtual bool is_idle() const = 0;
  /// The slow part of a wait: deaths, failures elsewhere, deadlines, warnings.
  virtual void look() = 0;
  /// Whether nothing wakes who waits for its works: waits yield then, and the thread takes naps.
  virtual bool wants_looks() const { return false; }
  /// What poll(2) has to watch; nothing if the doorbell is rung for all that can happen.
  virtual void add_wait_descriptors(std::vector<pollfd>& descriptors) = 0;
};

/// One per process (or per thread that is a rank).
class Progress {
 public:
  Progress(std::shared_ptr<ControlPage> page, const WaitPolicy& policy);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  using Lock = std::unique_lock<std::mutex>;
  Lock lock() { return Lock(mutex_); }

  /// Of waits that begin from now on: for measurements.
  void set_policy(const WaitPolicy& policy) { policy_ = policy; }
  const WaitPolicy& policy() const { return policy_; }
  void attach(Engine& engine);
  /// From now on a thread moves works on, too.
  void start_thread();
  void detach(Engine& engine);
  /// An engine that was idle has work. REQUIRES: lock.
  void wake_thread();

  /// Moves everything on, once. REQUIRES: lock.
  bool advance();
  void poll();
  /// Moves everything on until `is_over` (called under the lock) says so; false after `at_most`.
  bool wait(const std::function<bool()>& is_over, std::chrono::nanoseconds at_most);

  std::atomic<std::uint64_t>& own_work_ns() { return own_work_ns_; }
  /// When the last sleep of a wait ended, by record_now_ns(); 0: none has slept.
  std::uint64_t slept_until_ns() const { return slept_until_ns_.load(std::memory_order_relaxed); }

 private:
  bool drive_until(const std::function<bool()>& is_over, std::chrono::nanoseconds at_most);
  bool has_work() const;
  bool wants_looks() const;
  void sleep(std::chrono::nanoseconds at_most);
  void sleep_on_descriptors(std::vector<pollfd>& descriptors, std::chrono::nanoseconds at_most) const;
  void look();
  void run_thread();

  std::mutex mutex_;
  std::shared_ptr<ControlPage> page_;
  WaitPolicy policy_;
  std::vector<Engine*> engines_;
  std::atomic<std::uint64_t> own_work_ns_ = 0, slept_until_ns_ = 0;
  std::condition_variable work_arrived_;
  std::atomic<int> waiting_ = 0;           // threads in wait()
  bool thread_sleeps_ = false;             // until it is called
  std::atomic<bool> is_relieved_ = false;  // the thread has left the work to who waits
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep
