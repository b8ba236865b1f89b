// A Work is one collective or message under way: a borrowed buffer and the promise that somebody will finish
// it.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

namespace lockstep {

/// What a Work stands for; made by a backend.
class PendingWork {
 public:
  virtual ~PendingWork() = default;
  /// Whether it is over, well or badly; makes progress on everything under way first.
  virtual bool poll() = 0;
  /// Returns when it is over; rethrows the failure of a background step.
  virtual void wait() = 0;
  /// The same for at most `duration`; false if it is still going on.
  virtual bool wait_for(std::chrono::nanoseconds duration) = 0;
  /// Returns when it is over on a GPU, too.
  virtual void synchronize() { wait(); }
  /// Of a call on a GPU: as wait(), and wait() or synchronize() may follow. False of others, which it leaves alone.
  virtual bool follow() { return false; }
  /// Its group fails at once, and this rank is to blame: an exception destroys a buffer that others still
  /// need.
  virtual void abandon() noexcept = 0;
};

/// Move-only. The buffers that the call borrowed must stay until the Work is over; the destructor waits, so a
/// local buffer declared before its Work is safe. A failure that nobody fetched by wait() is logged by the
/// destructor. Destroyed while an exception unwinds, it closes the group at once and names this rank instead
/// of waiting.
///
/// Who works: wait(), wait_for() and test() move every work of the process on, not only this one, so works
/// finish in any order of waiting. Inside a host nothing else does; with ranks on other hosts a thread does
/// in the background. Thread safety: a Work belongs to one thread at a time.
class [[nodiscard]] Work {
 public:
  /// Over already, as everything is in a group of one.
  Work() = default;
  explicit Work(std::unique_ptr<PendingWork> pending);
  Work(Work&& other) noexcept;
  Work& operator=(Work&& other) noexcept;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work();

  /// One Work that is over when all of these are. Its wait() rethrows the first failure, in their order.
  static Work all(std::vector<Work> works);

  /// Throws Error: timeout, peer_lost, mismatch, aborted; the group is closed then. Of a call on a GPU's memory it makes the
  /// stream wait that the call was given, and returns at once: what the program puts there from now on comes after the call.
  /// What such a call comes to later, its group's next one throws.
  void wait();
  /// The same, but of a call on a GPU's memory the Work stays: synchronize() tells what has become of it.
  void follow();
  /// Waits on the host, also for a GPU. Throws as wait() does.
  void synchronize();
  /// Whether it is over, without waiting. Throws as wait() does.
  [[nodiscard]] bool test();
  /// Waits for at most `duration`; false if it is still going on, which is no error. Throws as wait() does.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds duration);
  /// Ends it without waiting: unless it is over, its group fails at once and names this rank, so that nobody
  /// waits for what this rank will not do any more.
  void abandon() noexcept;

 private:
  void finish() noexcept;
  std::unique_ptr<PendingWork> pending_;
  int exceptions_ = 0;  // under way in this thread when the work began
};

}  // namespace lockstep
