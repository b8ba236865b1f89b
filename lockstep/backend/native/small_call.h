// A small call inside a host while nothing else of the group is under way: it takes less time than to set up
// a task for it, so it is done at once. The steps are those of its schedule, as always; what can be done
// while the others' words are on their way is done then.
#pragma once

#include <array>

#include "lockstep/backend/native/bind.h"

namespace lockstep {

class SmallCall final : public Surroundings {
 public:
  SmallCall(Arrivals& arrivals, int rank, int ranks) : arrivals_(arrivals), rank_(rank), ranks_(ranks) {}

  /// Whether `request` is the same as the last one of its operation, apart from its buffers. Most are. If it
  /// is not, learn() has to come before begin().
  bool recall(const Request& request);
  /// REQUIRES: `plan` uses slots.
  void learn(const Request& request, std::shared_ptr<const Plan> plan);
  /// Of the request that was recalled or learnt last.
  const std::shared_ptr<const Plan>& plan() const { return call_->plan; }
  /// Tells the others, and leaves our part where they see it. REQUIRES: the lane of work `number` is free;
  /// `request` was recalled or learnt. Its buffers are borrowed until finish().
  void begin(const Request& request, std::uint64_t number);
  /// Looks so many times; returns whether all are there and call the same. If not, a task has to go on from
  /// next_step().
  bool is_met(int looks);
  /// By record_now_ns(): when our part was done, and the last moment at which others were not known to have
  /// come.
  std::uint64_t begin_ns() const { return begin_ns_; }
  std::uint64_t arrived_ns() const { return arrived_ns_; }
  std::uint64_t number() const { return number_; }
  std::size_t next_step() const { return call_->execution.next_step(); }
  /// Takes the steps that are left. REQUIRES: is_met().
  void finish();

 private:
  Link& link(int peer) override;
  void arrive(std::uint32_t stage) override;
  bool await(std::uint32_t) override { return is_met_; }
  Exchange& exchange() override;

  /// The last call of an operation, kept to be made again.
  struct KnownCall {
    Signature signature;
    std::size_t element_bytes = 0;  ///< 0: not to be recalled
    std::shared_ptr<const Plan> plan;
    Execution execution;
  };

  Arrivals& arrivals_;
  int rank_;
  int ranks_;
  std::array<KnownCall, operation_count> calls_;  // by operation
  KnownCall* call_ = nullptr;                     // the current one
  std::uint64_t number_ = 0;
  std::uint64_t begin_ns_ = 0, arrived_ns_ = 0;
  bool is_met_ = false;
};

}  // namespace lockstep
