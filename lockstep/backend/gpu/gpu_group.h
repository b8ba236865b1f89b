// A group's collectives on the memory of one GPU of each rank, carried by a GpuEngine. They run on streams of the engine's, beside
// what the program does on its own:
//
//   program's stream   [kernels]--mark            (wait()) mark--[kernels that use the result]
//                                 \                         /
//   engine's stream                [ all_reduce, by NCCL ]--
//
// A thread looks after what is under way: for ranks that have died or failed elsewhere, for the engine's own errors, for the
// deadline. When one of them comes, the engine is aborted, so that nothing on the GPU waits for ever, and the group is
// closed, here and on all its ranks, by what the first one says.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/call_record.h"
#include "lockstep/backend/gpu/gpu_engine.h"
#include "lockstep/base/error.h"
#include "lockstep/execute/progress.h"
#include "lockstep/memory/gpu.h"
#include "lockstep/transport/members.h"

namespace lockstep {

class GpuGroup final : public std::enable_shared_from_this<GpuGroup> {
 public:
  struct Options {
    std::string name;  ///< of the group, as in messages
    std::string
        record_name;  ///< of these calls in the record, where calls in main memory have the group's own
    Members members;
    std::shared_ptr<Gpu> gpu = nullptr;
    std::shared_ptr<Progress> progress;
    RecordPlaces record;
    std::chrono::nanoseconds timeout{};
    std::chrono::nanoseconds warn_after{};
    std::shared_ptr<void> keep_alive = nullptr;  ///< what `record` belongs to
    /// Why the group has failed, as far as is known; asked now and then, by several threads. `needs_all`: a rank that has left
    /// is missed. May be null.
    std::function<std::optional<Error>(bool needs_all)> failure_elsewhere = nullptr;
    /// Fails the group, here and for the others. May be null.
    std::function<void(const Error& cause)> tell_failure = nullptr;
  };
  /// `engine` has connected its ranks.
  static std::shared_ptr<GpuGroup> begin(Options options, std::unique_ptr<GpuEngine> engine);
  ~GpuGroup();
  GpuGroup(const GpuGroup&) = delete;
  GpuGroup& operator=(const GpuGroup&) = delete;

  /// Begins them, GpuEngine::most_at_once or fewer, as one call: all on this GPU's memory, and in the order of one stream. All ranks submit their calls in
  /// one order, but for messages' two sides. Throws Error: unsupported and invalid_argument before anything is begun; the
  /// group's failure.
  std::unique_ptr<PendingWork> submit(std::span<const Request> requests);
  /// As Backend::close().
  void close(const std::string& reason);

 private:
  class Call;
  class Work;

  GpuGroup(Options options, std::unique_ptr<GpuEngine> engine);
  void await_the_last();
  std::optional<Error> failure_elsewhere(bool needs_all = false) const;
  void require_live() const;
  std::shared_ptr<Call> begin_call(std::span<const Request> requests);
  void put(std::span<const Request> requests, Call& call);
  void settle(Call& call);
  void open(Call& call);
  void watch();
  void wait_idle(std::unique_lock<std::mutex>& lock);
  void look();
  void advance();
  void look_at_clock(Call& call);
  void tell_waiting(const Call& call);
  Error timed_out(const Call& call);
  std::optional<Error> word_from_elsewhere() const;
  Error explained(const Error& of_engine) const;
  /// Whom a failure is news to: who is reached by the engine may not be by the group that it was heard from.
  enum class Telling { nobody, engine, all };
  void fail(const Error& cause, Telling telling) noexcept;
  void finish(Call& call, bool has_failed);
  Error make_error(const Call& call) const;
  Error failure_of(const std::string& what, const char* end = "") const;
  std::chrono::nanoseconds tell_after() const;

  const Options options_;
  const std::unique_ptr<GpuEngine> engine_;
  CallRecord record_;  // under the progress lock
  std::uint64_t engine_number_ = 0;

  // In this order, where several are taken; the progress lock last.
  std::mutex order_;               // of calls, as they are begun
  mutable std::mutex mutex_;       // of what follows
  std::uint64_t next_number_ = 0;  // of collectives
  std::uint64_t messages_ = 0;
  std::uint64_t told_through_ = 0;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Call>> active_;  // in the order of the stream
  std::optional<Error> failure_;
  bool stops_ = false;
  std::thread watch_;
};

}  // namespace lockstep
