#include "lockstep/backend/native/quick_path.h"

namespace lockstep {
namespace {

// Larger messages take so long that the cost of a work of their own does not matter.
constexpr std::size_t small_message_bytes = 4096;

}  // namespace

QuickPath::QuickPath(GroupParts& parts, CallNumbers& numbers) : parts_(parts), numbers_(numbers) {
  if (parts.is_one_host) small_call_.emplace(*parts.arrivals, parts.rank(), parts.ranks());
}

QuickPath::Collective QuickPath::collective(const Request& request) {
  std::uint64_t& next = numbers_.next_for(request);
  const std::uint64_t number = next;
  if (!parts_.arrivals->lane_is_free(number)) return Collective::untouched;
  if (!small_call_->recall(request)) {
    const auto& plan = parts_.plans.find_one_shot(request.call, request.signature, request.element_bytes);
    if (!plan) return Collective::untouched;
    small_call_->learn(request, plan);
  }
  ++next;
  small_call_->begin(request, number);
  if (!small_call_->is_met(short_looks)) return Collective::begun;
  small_call_->finish();
  parts_.arrivals->complete_through(numbers_.complete(number));
  const std::uint64_t arrived_ns = small_call_->arrived_ns();
  note(request, number, small_call_->begin_ns(), arrived_ns, small_call_->plan().get());
  return Collective::done;
}

void QuickPath::note(const Request& request, std::uint64_t number, std::uint64_t begin_ns,
                     std::uint64_t end_ns, const Plan* plan) {
  parts_.record.note(parts_.record.event(request.signature, number, begin_ns, end_ns, end_ns), plan,
                     CallRecord::sizes_of(request.signature, request.element_bytes), end_ns - begin_ns);
}

void QuickPath::hand_over(const Request& request, NativeTask& task) const {
  task.go_on(request, small_call_->plan(), small_call_->number(), small_call_->next_step(),
             small_call_->begin_ns());
}

bool QuickPath::message(const Request& request) {
  const bool sends = request.signature.operation == Operation::send;
  const std::size_t bytes = sends ? request.input.size() : request.output.size();
  if (bytes > small_message_bytes) return false;
  std::uint64_t& number = numbers_.next_for(request);
  std::uint64_t begin_ns = 0, last_look_ns = 0;
  if (sends) {
    if (!parts_.mailbox.send_now(outgoing(request, number))) return false;
    begin_ns = last_look_ns = trace::record_now_ns();
  } else {
    Incoming receive = incoming(request, number);
    begin_ns = last_look_ns = trace::record_now_ns();
    if (!parts_.mailbox.receive_now(receive, short_looks, last_look_ns)) return false;
    if (request.received != nullptr) *request.received = receive.from;
  }
  note(request, number, begin_ns, last_look_ns, nullptr);
  ++number;
  return true;
}

}  // namespace lockstep
