// NCCL's communicator of a group, as an engine of its calls on GPUs.
#pragma once

#include <cstddef>
#include <limits>
#include <mutex>
#include <optional>

#include "lockstep/backend/gpu/gpu_engine.h"
#include "lockstep/backend/gpu/positions.h"
#include "lockstep/backend/nccl/nccl_calls.h"
#include "lockstep/base/error.h"

namespace lockstep::nccl {

class Engine final : public GpuEngine {
 public:
  /// Connects; collective. Throws Error: system (what NCCL says), timeout, what `options.check` throws.
  Engine(Options options, Deadline deadline);
  ~Engine() override;

  const char* name() const override { return "nccl"; }
  void require_possible(const Request& request) const override { nccl::require_possible(request); }
  std::size_t messages_at_once() const override { return std::numeric_limits<std::size_t>::max(); }
  bool can_be_captured() const override { return true; }
  Placed put(std::span<const Request> requests, cuda::Stream stream, bool is_captured) override;
  State look() override;
  std::chrono::nanoseconds looks_when_idle() const override { return {}; }
  void abort() noexcept override;
  void end(Deadline deadline, const std::function<bool()>& gives_up) override;
  void tell_waiting(std::uint64_t number, const Signature& called) override;
  void tell_through(std::uint64_t number) override;
  std::vector<int> missing_in(std::uint64_t number, const Signature& called) override;
  std::string advice() const override { return "NCCL_DEBUG=INFO shows what NCCL does"; }

 private:
  UniqueId agree_on_id(Deadline deadline);
  void connect(const UniqueId& id, Deadline deadline);
  Result ask() const;
  State state_of(Result result) const;
  Error failed(Result result) const;
  void release() noexcept;

  const Options options_;
  const Library& library_;
  Comm comm_ = nullptr;
  const std::shared_ptr<GpuEvents> events_;
  cuda::Stream stream_ = nullptr;
  cuda::Address scratch_ = 0;
  std::optional<Calls> calls_;
  std::optional<GpuPositions> positions_;  // where there are other ranks
  mutable std::mutex mutex_;  // of the communicator, which one thread may abort while others use it
  bool is_aborted_ = false;   // it is gone
};

}  // namespace lockstep::nccl
