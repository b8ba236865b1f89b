// A group's collectives on the memory of one GPU of each rank, by NCCL. They run on a stream of the group's own, beside
// what the program does on its streams:
//
//   program's stream   [kernels]--mark            (wait()) mark--[kernels that use the result]
//                                 \                         /
//   group's stream                 [ all_reduce, by NCCL ]--
//
// A thread looks after what is under way: for ranks that have died or failed elsewhere, for NCCL's own errors, for the
// deadline. When one of them comes, NCCL's communicator is aborted, so that no kernel waits for ever, and the group is
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
#include "lockstep/backend/nccl/nccl_calls.h"
#include "lockstep/backend/nccl/nccl_positions.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/execute/progress.h"
#include "lockstep/memory/gpu.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/transport/members.h"

namespace lockstep {

class NcclGroup final : public std::enable_shared_from_this<NcclGroup> {
 public:
  struct Options {
    std::string name;  ///< of the group, as in messages
    std::string
        record_name;  ///< of these calls in the record, where calls in main memory have the group's own
    Members members;
    std::shared_ptr<Gpu> gpu = nullptr;
    /// Where its ranks, and no others, meet and tell each other where they are; null in a group of one.
    std::shared_ptr<Store> store;
    std::shared_ptr<Progress> progress;
    RecordPlaces record;
    std::chrono::nanoseconds connect_timeout{};
    std::chrono::nanoseconds timeout{};
    std::chrono::nanoseconds warn_after{};
    std::shared_ptr<void> keep_alive = nullptr;  ///< what `record` belongs to
    /// Why the group has failed, as far as is known; asked now and then, by several threads. `needs_all`: a rank that has left
    /// is missed. May be null.
    std::function<std::optional<Error>(bool needs_all)> failure_elsewhere = nullptr;
    /// Fails the group, here and for the others. May be null.
    std::function<void(const Error& cause)> tell_failure = nullptr;
  };
  /// Collective over the group's ranks. Throws Error: unsupported (no NCCL, one that is too old or of another version on
  /// another rank, a GPU that two ranks have), timeout and peer_lost naming ranks that do not come.
  static std::shared_ptr<NcclGroup> connect(Options options);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  /// Begins them, as one call: all on this GPU's memory, and in the order of one stream. All ranks submit their calls in
  /// one order, but for messages' two sides. Throws Error: unsupported and invalid_argument before anything is begun; the
  /// group's failure.
  std::unique_ptr<PendingWork> submit(std::span<const Request> requests);
  /// As Backend::close().
  void close(const std::string& reason);

 private:
  class Call;
  class Work;

  explicit NcclGroup(Options options);
  void meet();
  void end();
  void begin_nccl(const nccl::UniqueId& id, Deadline deadline);
  void await_the_last();
  std::optional<Error> failure_elsewhere(bool needs_all = false) const;
  void require_live() const;
  nccl::Result ask_nccl() const;
  std::shared_ptr<Call> begin(std::span<const Request> requests);
  void tie_to_program(Call& call);
  void put(std::span<const Request> requests, Call& call);
  void settle(Call& call);
  void open(Call& call);
  void watch();
  void look();
  bool advance();
  void look_at_clock(Call& call);
  void tell_waiting(const Call& call);
  Error timed_out(const Call& call);
  Error nccl_failed(nccl::Result result) const;
  void fail(const Error& cause, bool is_told) noexcept;
  void abort_nccl() noexcept;
  void finish(Call& call, bool has_failed);
  Error make_error(const Call& call) const;
  Error failure_of(const std::string& what, const char* end = "") const;
  std::chrono::nanoseconds tell_after() const;

  const Options options_;
  const nccl::Library& nccl_;
  CallRecord record_;  // under the progress lock
  std::uint64_t engine_number_ = 0;
  nccl::Comm comm_ = nullptr;
  cuda::Stream stream_ = nullptr;
  cuda::Address scratch_ = 0;
  std::shared_ptr<GpuEvents> events_;
  std::optional<nccl::Calls> calls_;
  std::optional<nccl::Positions> positions_;  // where there are other ranks

  // In this order, where several are taken; the progress lock last.
  std::mutex order_;               // of calls, as they are begun
  mutable std::mutex comm_mutex_;  // of NCCL's communicator, which one thread may abort while others use it
  mutable std::mutex mutex_;       // of what follows
  std::uint64_t next_number_ = 0;  // of collectives
  std::uint64_t messages_ = 0;
  std::uint64_t told_through_ = 0;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Call>> active_;  // in the order of the stream
  std::optional<Error> failure_;
  bool is_aborted_ = false;  // NCCL's communicator is gone; of comm_mutex_
  bool stops_ = false;
  std::thread watch_;
};

}  // namespace lockstep
