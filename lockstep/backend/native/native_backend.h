// Our own engine: collectives as schedules over arenas, shared-memory rings and sockets. This is the queue of
// a group's works: it takes calls in, moves them on, and closes the group when one fails.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/native/blame.h"
#include "lockstep/backend/native/call_numbers.h"
#include "lockstep/backend/native/group_parts.h"
#include "lockstep/backend/native/native_task.h"
#include "lockstep/backend/native/native_work.h"
#include "lockstep/backend/native/quick_path.h"
#include "lockstep/execute/progress.h"
#include "lockstep/memory/arena.h"

namespace lockstep {

struct NativeOptions {
  std::string name;  ///< of the group, as in messages
  Members members;
  int ranks_per_node = 0;              ///< of this host's memory: as in Call
  std::shared_ptr<HostRegion> region;  ///< of the ranks on this host
  /// This rank's, where the region has borrowed it; null: it is made of the region.
  std::shared_ptr<Arena> arena = nullptr;
  std::shared_ptr<ControlPage> page;
  std::unique_ptr<Transport> transport;
  std::shared_ptr<Progress> progress;
  RecordPlaces record;
  Tuning tuning;
  std::shared_ptr<Exchange> exchange = nullptr;  ///< of ranks on several hosts, where an engine was chosen
  std::size_t mailbox_bytes = std::size_t{256} << 20;  ///< see Mailbox
  std::chrono::nanoseconds timeout{};
  std::chrono::nanoseconds warn_after{};
  bool goes_on = false;      ///< a rank's death is not the end of the job
  bool is_whole_job = true;  ///< whoever leaves the group leaves the job
  std::shared_ptr<Blame*> blame_of_world =
      nullptr;  ///< of which this group is a part; null: it is the world's
};

class NativeBackend final : public Backend,
                            public Engine,
                            public TaskOwner,
                            public std::enable_shared_from_this<NativeBackend> {
 public:
  static std::shared_ptr<NativeBackend> make(NativeOptions options);
  ~NativeBackend() override;

  std::unique_ptr<PendingWork> submit(const Request& request) override;
  void poll() override;
  std::optional<FirstCause::Cause> failure(bool needs_all = false) override;
  void abort(const std::string& reason) override;
  std::uint64_t own_work_ns() const override;
  ArenaBlock allocate(std::size_t bytes) override;
  RegisteredMemory register_memory(std::span<std::byte> bytes) override;
  void keep_from_reuse(std::span<const std::byte> bytes) override;
  std::shared_ptr<HostRegion> shared_region() const override {
    return parts_.is_one_host ? parts_.region : nullptr;
  }
  HostMemory host_memory() const override { return {parts_.region, arena_}; }
  void leave() override;
  void close(const std::string& reason) override;
  void fail(const Error& error) override;

  /// Under the progress lock; null once the group is gone.
  const std::shared_ptr<Blame*>& blame() const { return shared_blame_; }

  // Engine, under the progress lock.
  bool advance() override;
  bool is_idle() const override { return active_.empty(); }
  void look() override;
  bool wants_looks() const override { return parts_.exchange && parts_.exchange->is_under_way(); }
  void add_wait_descriptors(std::vector<pollfd>& descriptors) override;

  // TaskOwner.
  Progress& progress() override { return *progress_; }
  void recycle(std::unique_ptr<NativeTask> task) override;
  Error error_of(const NativeTask& task) const override;
  void abandon(const NativeTask& task) noexcept override;

 private:
  explicit NativeBackend(NativeOptions options);
  std::unique_ptr<NativeTask> take_task();
  bool may_be_quick() const;
  bool pass_small_message(const Request& request);
  std::unique_ptr<PendingWork> finish_small(const Request& request);
  void look_shortly_at(const NativeTask& task);
  /// `called_ns`: when the program called.
  std::unique_ptr<PendingWork> pending(std::unique_ptr<NativeTask> task, std::uint64_t called_ns);
  void finish(NativeTask& task);
  void notice_failure_elsewhere();
  void fail(FirstCause::Cause cause);
  void quarantine();
  std::function<bool()> others_have_let_go() const;
  void end_calls();
  Error make_error(const Signature& signature, std::uint64_t number) const;

  const std::string name_;
  const bool goes_on_;
  bool has_left_ = false;
  const std::shared_ptr<Progress> progress_;
  const std::unique_ptr<Transport> transport_;
  const bool shares_arena_;  // with other groups
  const std::shared_ptr<Arena> arena_;
  GroupParts parts_;
  CallNumbers numbers_;
  QuickPath quick_;
  Blame blame_;
  const std::shared_ptr<Blame*> shared_blame_ = std::make_shared<Blame*>(&blame_);
  std::deque<NativeTask*> active_;  // in the order of submission
  std::vector<std::unique_ptr<NativeTask>> idle_tasks_;
  std::optional<FirstCause::Cause> failure_;
};

}  // namespace lockstep
