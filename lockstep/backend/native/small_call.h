// A small call inside a host while nothing else of the group is under way: it takes less time than to set up
// a task for it, so it is done at once. The steps are those of its schedule, as always; what can be done
// while the others' words are on their way is done then.
#pragma once

#include "lockstep/backend/native/bind.h"

namespace lockstep {

class SmallCall final : public Surroundings {
 public:
  SmallCall(Arrivals& arrivals, int rank, int ranks) : arrivals_(arrivals), rank_(rank), ranks_(ranks) {}

  /// Whether `request` is the last one again but for its buffers, as it is most of the time.
  bool repeats_last(const Request& request) const;
  /// Of the last request; null if there was none.
  const std::shared_ptr<const Plan>& plan() const { return plan_; }
  /// Tells the others, and leaves our part where they see it. REQUIRES: the lane of work `number` is free;
  /// `plan` uses slots and is the last one if repeats_last(). The request's buffers are borrowed until
  /// finish().
  void begin(const Request& request, const std::shared_ptr<const Plan>& plan, std::uint64_t number);
  /// Looks so often; whether all are there and call the same. If not, a task has to go on from next_step().
  bool is_met(int looks);
  /// By record_now_ns(): when our part was done, and the last moment at which others were not known to have
  /// come.
  std::uint64_t begin_ns() const { return begin_ns_; }
  std::uint64_t arrived_ns() const { return arrived_ns_; }
  std::size_t next_step() const { return execution_.next_step(); }
  /// Takes the steps that are left. REQUIRES: is_met().
  void finish();

 private:
  Link& link(int peer) override;
  void arrive(std::uint32_t stage) override;
  bool await(std::uint32_t) override { return is_met_; }

  Arrivals& arrivals_;
  int rank_;
  int ranks_;
  Execution execution_;
  std::uint64_t number_ = 0;
  std::shared_ptr<const Plan> plan_;
  Signature signature_;
  std::size_t element_bytes_ = 0;
  std::uint64_t begin_ns_ = 0, arrived_ns_ = 0;
  bool is_met_ = false;
};

}  // namespace lockstep
