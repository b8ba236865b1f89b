#include "lockstep/backend/native/small_call.h"

#include <stdexcept>

namespace lockstep {

void SmallCall::begin(const Request& request, const Plan& plan, std::uint64_t number) {
  number_ = number;
  signature_ = request.signature;
  is_met_ = false;
  bind_call(execution_.bindings(), request, signature_, rank_, ranks_);
  bind_slots(execution_.bindings(), arrivals_, number, plan, ranks_);
  execution_.begin(plan.schedule, *this, rank_, number, signature_);
  std::uint64_t ignored = 0;  // so little work is not timed
  static_cast<void>(execution_.advance(ignored));
  arrivals_.take_cell(number + 1);
}

// Only now, right after our part and right before the flag: all three are in one cache line, which the others
// look at all the time. Whenever they get it before it is complete, we have to take it back.
void SmallCall::arrive(std::uint32_t stage) {
  arrivals_.announce(number_, signature_);
  arrivals_.arrive(number_, stage);
}

bool SmallCall::is_met(int looks) {
  if (!arrivals_.spin_until_all_arrived(number_, 1, looks)) return false;
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
