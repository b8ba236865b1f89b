#include "lockstep/backend/native/small_call.h"

#include <stdexcept>

#include "lockstep/trace/clock.h"

namespace lockstep {

bool SmallCall::recall(const Request& request) {
  call_ = &calls_[static_cast<std::size_t>(request.signature.operation)];
  return call_->element_bytes == request.element_bytes && call_->signature == request.signature &&
         !request.custom && request.call.counts.empty();
}

void SmallCall::learn(const Request& request, std::shared_ptr<const Plan> plan) {
  call_ = &calls_[static_cast<std::size_t>(request.signature.operation)];
  // One with counts or a function of the user's is not to be recalled: they would have to be compared.
  const bool is_plain = !request.custom && request.call.counts.empty();
  call_->element_bytes = is_plain ? request.element_bytes : 0;
  call_->signature = request.signature;
  call_->plan = std::move(plan);
  bind_call(call_->execution.bindings(), request, rank_, ranks_);
}

void SmallCall::begin(const Request& request, std::uint64_t number) {
  Execution& execution = call_->execution;
  bind_buffers(execution.bindings(), request, rank_);
  bind_slots(execution.bindings(), arrivals_, number, *call_->plan, ranks_);
  number_ = number;
  is_met_ = false;
  execution.begin(call_->plan->schedule, *this, rank_, number, call_->signature);
  std::uint64_t ignored = 0;  // so little work is not timed
  static_cast<void>(execution.advance(ignored));
  arrivals_.take_cell(number + 1);
  begin_ns_ = arrived_ns_ = trace::record_now_ns();
}

// Only now, right after our part and right before the flag: all three are in one cache line, which the others
// look at all the time. Whenever they get it before it is complete, we have to take it back.
void SmallCall::arrive(std::uint32_t stage) {
  arrivals_.announce(number_, call_->signature);
  arrivals_.fetch_cells(number_);
  arrivals_.arrive(number_, stage);
}

bool SmallCall::is_met(int looks) {
  if (!arrivals_.spin_until_all_arrived(number_, 1, looks, arrived_ns_)) return false;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!call_->signature.matches(arrivals_.signature(number_, rank))) return false;
  }
  return is_met_ = true;
}

void SmallCall::finish() {
  std::uint64_t ignored = 0;
  static_cast<void>(call_->execution.advance(ignored));
}

Link& SmallCall::link(int) { throw std::logic_error("a schedule that uses slots sends no messages"); }

Exchange& SmallCall::exchange() { throw std::logic_error("a schedule that uses slots has no engine"); }

}  // namespace lockstep
