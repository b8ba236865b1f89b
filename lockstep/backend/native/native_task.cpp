#include "lockstep/backend/native/native_task.h"

#include <algorithm>

#include "lockstep/backend/mismatch.h"
#include "lockstep/kernel/reduce.h"

namespace lockstep {

void NativeTask::begin(const Request& request, const Signature& called, const BufferOffsets& offsets,
                       std::uint64_t its_number) {
  request_ = request;
  request_.signature = called;
  offsets_ = offsets;
  number = its_number;
  state = State::queued;
  plan.reset();
  begin_ns = 0;
  arrived_ns = last_look_ns_ = 0;
  waiting_since_ns = 0;
  warned = false;
  is_awaited = is_waited_for = false;
  told.clear();
  blocked_ns = 0;
  open_call = trace::OpenCalls::nowhere;
  compared_ = false;
  own_output_ = nullptr;
  if (is_message()) begin_message();
}

void NativeTask::take_input_at(const Reach& reach) {
  reach.copy_edges(request_.input.data(), reach.place, request_.input.size());
  request_.input = {reach.place, request_.input.size()};
}

// What nobody writes to there comes back as it was.
void NativeTask::take_output_at(const Reach& reach) {
  own_output_ = request_.output.data();
  output_reach_ = reach;
  reach.copy_edges(own_output_, reach.place, request_.output.size());
  request_.output = {reach.place, request_.output.size()};
}

void NativeTask::complete() {
  if (own_output_ != nullptr)
    output_reach_.copy_edges(request_.output.data(), own_output_, request_.output.size());
  state = State::complete;
}

void NativeTask::go_on(const Request& request, const std::shared_ptr<const Plan>& its_plan,
                       std::uint64_t its_number, std::size_t next_step, std::uint64_t its_begin_ns) {
  begin(request, request.signature, {}, its_number);
  begin_ns = its_begin_ns;
  plan = its_plan;
  run(next_step);
}

void NativeTask::begin_message() {
  state = State::running;
  if (signature().operation == Operation::send) {
    outgoing_ = outgoing(request_, number);
    parts_.mailbox.post(outgoing_);
  } else {
    incoming_ = incoming(request_, number);
    parts_.mailbox.post(incoming_);
  }
  begin_ns = trace::record_now_ns();
}

bool NativeTask::advance_message() {
  const bool sends = signature().operation == Operation::send;
  if (sends ? !outgoing_.is_over : !incoming_.is_over) return false;
  if (!sends && request_.received != nullptr) *request_.received = incoming_.from;
  state = State::complete;
  return true;
}

bool NativeTask::advance(bool is_alone, std::uint64_t& own_work_ns) {
  if (is_message()) return advance_message();
  const State before = state;
  if (state == State::queued && !leave_queue()) return false;
  if (state == State::announced && !learn_plan()) return state != before;
  if (state == State::planned) {
    if (!is_alone) return state != before;
    run();
  }
  if (state != State::running) return state != before;
  if (execution_.advance(own_work_ns)) complete();
  return execution_.has_moved() || state != before;
}

// The clock is read after the others were told of the call, because they wait for that.
bool NativeTask::leave_queue() {
  const bool has_left = begin_work();
  if (begin_ns == 0) begin_ns = trace::record_now_ns();
  return has_left;
}

bool NativeTask::begin_work() {
  auto& arrivals = parts_.arrivals;
  PlanCache& plans = parts_.plans;
  if (!arrivals) {
    plan = plans.find(request_.call, signature(), request_.element_bytes, BufferClass::private_memory);
    state = State::planned;
    return true;
  }
  if (!parts_.is_one_host) {
    plan = plans.find(request_.call, signature(), request_.element_bytes, BufferClass::private_memory);
    if (!meets_inside()) {
      state = State::planned;
      return true;
    }
  }
  if (!arrivals->lane_is_free(number)) return false;
  plan = plans.find_one_shot(request_.call, signature(), request_.element_bytes);
  if (plan) {
    arrivals->announce(number, signature());
    run();
  } else {
    arrivals->announce(number, signature(), offsets_);
    arrive(1);
    arrivals->take_cell(number + 1);
    state = State::announced;
    if (!shares_buffers(parts_.rank())) choose_early();
  }
  return true;
}

/// Whether the plan has steps that the ranks of a host take together.
bool NativeTask::meets_inside() const {
  const Requirement needs = plan->choice->requirement;
  return needs == Requirement::hosts || (needs == Requirement::exchange && plan->schedule.has_stages());
}

// One rank's private buffer is enough for all of the host to choose among the algorithms for those.
void NativeTask::choose_early() {
  plan = parts_.plans.find(request_.call, signature(), request_.element_bytes, BufferClass::private_memory);
  if (plan->schedule.needs_no_first_wait()) {
    state = State::planned;
  } else {
    plan.reset();
  }
}

bool NativeTask::learn_plan() {
  if (!await(1)) return false;
  plan = parts_.plans.find(request_.call, signature(), request_.element_bytes,
                           all_share_buffers() ? BufferClass::arena : BufferClass::private_memory);
  state = State::planned;
  if (!plan->schedule.is_exclusive()) run();
  return true;
}

bool NativeTask::shares_buffers(int rank) const {
  // What is added up in halves on the way has to be scaled before; others see the arena's as it is.
  if (!parts_.is_one_host && signature().prescale != 1.0F) return false;
  const std::uint8_t flags = parts_.arrivals->signature(number, parts_.members[rank].local).flags;
  const SharedBuffers wanted = schedule::shared_buffers(signature().operation, rank, signature().root);
  if (wanted.input && (flags & Signature::input_in_arena) == 0) return false;
  if (wanted.output && (flags & Signature::output_in_arena) == 0) return false;
  // Others would read what this rank has overwritten.
  const bool is_in_place = (flags & Signature::is_in_place) != 0;
  return !is_in_place || signature().operation != Operation::all_to_all;
}

bool NativeTask::all_share_buffers() const {
  return std::ranges::all_of(parts_.here, [this](int rank) { return shares_buffers(rank); });
}

void NativeTask::run(std::size_t first_step) {
  constexpr std::size_t after_first_wait = 2;
  const bool has_announced = parts_.arrivals && plan->schedule.needs_no_first_wait();
  bind();
  execution_.begin(plan->schedule, *this, parts_.rank(), number, signature(),
                   has_announced ? after_first_wait : first_step);
  state = State::running;
}

void NativeTask::bind() {
  Bindings& bindings = execution_.bindings();
  bind_call(bindings, request_, parts_.rank(), parts_.ranks());
  bindings.sent_blocks = bindings.received_blocks = {};
  if (signature().has_counts_of_its_own()) {
    bindings.sent_blocks = request_.call.counts;
    bindings.received_blocks = request_.call.receive_counts;
  }
  if (const auto& arrivals = parts_.arrivals) {
    const Requirement needs = plan->choice->requirement;
    const bool is_in_arenas = plan->buffers == BufferClass::arena;
    if (needs == Requirement::slots) {
      bind_slots(bindings, *arrivals, number, *plan, parts_.ranks());
    } else if (needs == Requirement::arena || (meets_inside() && is_in_arenas)) {
      for (const int rank : parts_.here) {
        if (rank == parts_.rank()) continue;
        const int local = parts_.members[rank].local;
        std::byte* arena = parts_.region->arena(local);
        const BufferOffsets& offsets = arrivals->offsets(number, local);
        bindings.inputs[static_cast<std::size_t>(rank)] = arena + offsets.input;
        bindings.outputs[static_cast<std::size_t>(rank)] = arena + offsets.output;
      }
    } else if (needs == Requirement::staging || meets_inside()) {
      bindings.staging.resize(static_cast<std::size_t>(parts_.ranks()));
      for (const int rank : parts_.here) {
        bindings.staging[static_cast<std::size_t>(rank)] = parts_.region->staging(parts_.members[rank].local);
      }
      bindings.window_elements = plan->window_elements;
      bindings.windows = parts_.staging_ring.take(plan->schedule.staged_pieces(),
                                                  plan->schedule.staged_elements() * bindings.element_bytes);
      bindings.crossing = &parts_.crossing;
    }
  }
  bindings.wire_dtype = plan->wire_dtype;
  bindings.call = plan->schedule.uses_exchange() ? &request_.call : nullptr;
  // The same on all ranks: of a host, some may send nothing themselves.
  const Requirement needs = plan->choice->requirement;
  const bool is_sent =
      needs == Requirement::channels || needs == Requirement::hosts || needs == Requirement::exchange;
  if (signature().prescale != 1.0F && is_sent) prescale();
}

// Where contributions are added one by one, a factor that only came at the end would not keep halves from
// overflowing.
void NativeTask::prescale() {
  Bindings& bindings = execution_.bindings();
  const std::byte* source = request_.input.data();
  std::byte* destination = prescaled_.at_least(request_.input.size());
  kernel::reduce(signature().dtype, ReduceOp::sum, request_.input.size() / request_.element_bytes,
                 std::span(&source, 1), std::span(&destination, 1), signature().prescale);
  bindings.inputs[static_cast<std::size_t>(parts_.rank())] = prescaled_.data();
  bindings.scale = 1.0 / divisor_of(request_, parts_.ranks());
  request_.call.in_place = false;  // what an engine sends is not what lies in the output
}

trace::CompletedCollective NativeTask::make_event() const {
  const bool short_path = arrived_ns != 0 && plan && plan->choice->requirement == Requirement::slots;
  const std::uint64_t end_ns = short_path ? arrived_ns : trace::record_now_ns();
  auto event =
      parts_.record.event(signature(), number, begin_ns, arrived_ns != 0 ? arrived_ns : end_ns, end_ns);
  event.failed = state == State::failed ? 1 : 0;
  return event;
}

trace::OpenCall NativeTask::describe() const {
  return {.sequence = number,
          .begin_ns = begin_ns,
          .arrived_ns = arrived_ns,
          .signature = signature(),
          .group = parts_.record.group(),
          .peer = is_message() ? request_.peer : 0};
}

void NativeTask::note_waiting(const std::vector<int>& missing) const {
  std::vector<int> ranks;
  for (const int rank : missing) ranks.push_back(parts_.members[rank].world);
  parts_.record.open_calls().set_awaited(open_call, trace::now_ns(), ranks);
}

Link& NativeTask::link(int peer) { return parts_.links.to(peer); }

void NativeTask::arrive(std::uint32_t stage) { parts_.arrivals->arrive(number, stage); }

bool NativeTask::await(std::uint32_t stage) {
  if (!parts_.arrivals->have_all_arrived(number, stage)) {
    if (!compared_) last_look_ns_ = trace::record_now_ns();
    return false;
  }
  parts_.arrivals->take_cell(number);  // for the next stage; the others have read it
  if (!compared_) {
    compared_ = true;
    // Read while there was nothing else to do; a sleep ends because they are there.
    arrived_ns = std::max({begin_ns, last_look_ns_, parts_.progress.slept_until_ns()});
    if (open_call != trace::OpenCalls::nowhere) parts_.record.open_calls().set_arrived(open_call, arrived_ns);
    compare_signatures();
  }
  return true;
}

void NativeTask::compare_signatures() const {
  const auto called = [&](int rank) -> const Signature& {
    return parts_.arrivals->signature(number, parts_.members[rank].local);
  };
  for (const int rank : parts_.here) {
    if (rank != parts_.rank() && !signature().matches(called(rank))) {
      const auto caller = [&](int who) { return Caller{parts_.members[who].world, called(who), number}; };
      throw mismatch(caller(std::min(rank, parts_.rank())), caller(std::max(rank, parts_.rank())));
    }
  }
}

bool NativeTask::waits_for_some() const {
  if (is_message()) return signature().operation == Operation::receive && request_.peer == any_source;
  return state == State::running && execution_.current().kind == StepKind::wait &&
         execution_.awaited().kind == StepKind::exchange;
}

std::vector<int> NativeTask::missing() const {
  std::vector<int> ranks;
  if (is_message()) {
    // A rank may wait for a message of its own. In a receive from any source it waits for the others.
    if (request_.peer != any_source || parts_.ranks() == 1) return {std::max(request_.peer, 0)};
    for (int rank = 0; rank < parts_.ranks(); ++rank) {
      if (rank != parts_.rank()) ranks.push_back(rank);
    }
    return ranks;
  }
  const auto add_late = [&](std::uint32_t stage) {
    for (const int rank : parts_.here) {
      if (!parts_.arrivals->has_arrived(number, stage, parts_.members[rank].local)) ranks.push_back(rank);
    }
  };
  if (state == State::queued && parts_.arrivals) {
    for (const int rank : parts_.here) {
      const int local = parts_.members[rank].local;
      if (parts_.region->progress(local).completed.load(std::memory_order_acquire) + lane_count <= number) {
        ranks.push_back(rank);
      }
    }
  } else if (state == State::announced) {
    add_late(1);
  } else if (state == State::running) {
    const Step& step = execution_.current();
    if (step.kind == StepKind::await) add_late(step.target);
    if (step.kind == StepKind::wait && execution_.awaited().kind != StepKind::exchange)
      ranks.push_back(static_cast<int>(execution_.awaited().target));
    if (step.kind == StepKind::wait && execution_.awaited().kind == StepKind::exchange) {
      // The engine does not say for whom it waits. Where the ranks of this host have met, it is not for them.
      const bool have_met =
          parts_.arrivals && parts_.arrivals->has_arrived(number, 1, parts_.members.self().local);
      for (int rank = 0; rank < parts_.ranks(); ++rank) {
        if (!have_met || !parts_.members[rank].is_here()) ranks.push_back(rank);
      }
    }
  }
  std::erase(ranks, parts_.rank());
  return ranks;
}

}  // namespace lockstep
