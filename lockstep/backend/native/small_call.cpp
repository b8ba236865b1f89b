#include "lockstep/backend/native/small_call.h"

#include <stdexcept>

#include "lockstep/trace/clock.h"

namespace lockstep {

bool SmallCall::repeats_last(const Request& request) const {
  return plan_ && signature_.matches(request.signature) && signature_.flags == request.signature.flags &&
         element_bytes_ == request.element_bytes && !request.custom && request.counts.counts.empty();
}

void SmallCall::begin(const Request& request, const std::shared_ptr<const Plan>& plan, std::uint64_t number) {
  Bindings& bindings = execution_.bindings();
  if (repeats_last(request)) {
    bind_buffers(bindings, request, rank_);
  } else {
    // One with counts or a function of the user's is not to be repeated: they would have to be compared.
    const bool is_plain = !request.custom && request.counts.counts.empty();
    element_bytes_ = is_plain ? request.element_bytes : 0;
    signature_ = request.signature;
    plan_ = plan;
    bind_call(bindings, request, signature_, rank_, ranks_);
  }
  number_ = number;
  is_met_ = false;
  bind_slots(bindings, arrivals_, number, *plan_, ranks_);
  execution_.begin(plan_->schedule, *this, rank_, number, signature_);
  std::uint64_t ignored = 0;  // so little work is not timed
  static_cast<void>(execution_.advance(ignored));
  arrivals_.take_cell(number + 1);
  begin_ns_ = arrived_ns_ = trace::record_now_ns();
}

// Only now, right after our part and right before the flag: all three are in one cache line, which the others
// look at all the time. Whenever they get it before it is complete, we have to take it back.
void SmallCall::arrive(std::uint32_t stage) {
  arrivals_.announce(number_, signature_);
  arrivals_.fetch_cells(number_);
  arrivals_.arrive(number_, stage);
}

bool SmallCall::is_met(int looks) {
  if (!arrivals_.spin_until_all_arrived(number_, 1, looks, arrived_ns_)) return false;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!signature_.matches(arrivals_.signature(number_, rank))) return false;
  }
  return is_met_ = true;
}

void SmallCall::finish() {
  std::uint64_t ignored = 0;
  static_cast<void>(execution_.advance(ignored));
}

Link& SmallCall::link(int) { throw std::logic_error("a schedule that uses slots sends no messages"); }

}  // namespace lockstep
