// Calls on GPUs of ranks on several hosts, where NCCL cannot be since ranks share a GPU, or is not there: between hosts slices go through
// page-locked memory by the group's own engine, native or MPI; on a host, whose ranks share its GPU, kernels add up and hand on
// (device_arena/). A thread takes the steps of the calls that are under way (crossing.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/backend/device_arena/arena_engine.h"
#include "lockstep/backend/gpu/gpu_engine.h"
#include "lockstep/backend/gpu/positions.h"
#include "lockstep/backend/gpu_hosts/crossing.h"
#include "lockstep/base/background_thread.h"
#include "lockstep/base/error.h"

namespace lockstep::gpu_hosts {

/// What crosses how: the same on all ranks.
struct Sizes {
  std::size_t sliced_from = 0;  ///< bytes of an all_reduce; shorter ones cross as they are
  std::size_t piece_bytes = 0;  ///< of a slice, that cross at once

  /// LOCKSTEP_GPU_SLICED_FROM, LOCKSTEP_GPU_PIECE_BYTES. Throws Error{invalid_argument} naming one that is wrong.
  static Sizes from_environment();
};

/// Of the group's host that has most of them.
int most_ranks_on_a_host(const Members& members);

/// Why this rank cannot be one of those; empty: it can.
std::string why_not(const Members& members, const Backend& backend);

class Engine final : public GpuEngine {
 public:
  struct Parts {
    std::shared_ptr<void> groups = nullptr;  ///< what `all`, `peers` and `on_host` belong to; goes last
    std::unique_ptr<device_arena::Engine> on_host = nullptr;  ///< as in Road, and the next four
    Members here = {};
    std::shared_ptr<Backend> all = nullptr, peers = nullptr;
    Call of_peers = {};
    int slices = 1;
    int most_on_a_host = 1;  ///< ranks
    bool is_by_mpi = false;  ///< between hosts
    Sizes sizes = {};
  };
  /// All ranks are connected. Throws Error{system}.
  Engine(Options options, Parts parts);
  ~Engine() override;

  const char* name() const override { return "gpu_hosts"; }
  void require_possible(const Request& request) const override;
  std::size_t messages_at_once() const override { return device_arena::message_slots_of(most_on_a_host_); }
  bool can_be_captured() const override { return false; }
  Placed put(std::span<const Request> requests, cuda::Stream stream, bool is_captured) override;
  State look() override;
  std::chrono::nanoseconds looks_when_idle() const override;
  void tell_failure(const Error& cause) noexcept override;
  void abort() noexcept override;
  void end(Deadline deadline, const std::function<bool()>& gives_up) override;
  void tell_waiting(std::uint64_t number, const Signature& called) override;
  void tell_through(std::uint64_t number) override;
  std::vector<int> missing_in(std::uint64_t number, const Signature& called) override;
  std::string advice() const override {
    return "kernels of the programs' own, which come before it on their streams, may still run, or the "
           "network "
           "between the hosts be slow";
  }

 private:
  class Passage;
  class HostsCall;
  /// A request of a call that is under way.
  struct Traveller {
    std::shared_ptr<Passage> passage;
    std::unique_ptr<Crossing> crossing;
  };

  bool stays_on_host(const Request& request) const;
  std::unique_ptr<Crossing> begin_crossing(const Request& request, Passage& passage, cuda::Stream stream);
  void run();
  bool advance();
  void take_in();
  std::optional<Error> failure();
  void drain() noexcept;

  const Options options_;
  const std::shared_ptr<void> groups_;
  const std::unique_ptr<device_arena::Engine> on_host_;
  const int most_on_a_host_;
  const std::size_t sliced_from_;
  GpuPositions positions_;
  std::shared_ptr<HostFlags> flags_;
  Road road_;
  std::atomic<bool> is_aborted_ = false;

  // In this order, where both are taken.
  std::mutex steps_;                 // of what follows: held while steps are taken
  std::deque<Traveller> under_way_;  // in the order of calls
  std::mutex mutex_;                 // of what follows: held for a moment
  std::condition_variable changed_;
  std::deque<Traveller> arrived_;  // not under way yet
  bool stops_ = false;
  std::optional<Error> failure_;
  std::optional<BackgroundThread> thread_;
};

}  // namespace lockstep::gpu_hosts
