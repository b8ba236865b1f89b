#include "lockstep/backend/native/native_task.h"

#include "lockstep/backend/native/native_backend.h"

namespace lockstep {

Error mismatch(int rank, const Signature& called, std::uint64_t number, int other_rank,
               const Signature& other_called, std::uint64_t other_number) {
  const auto call = [](int who, const Signature& what, std::uint64_t count) {
    return "rank " + std::to_string(who) + " called " + to_string(what) + " as #" + std::to_string(count);
  };
  return Error(ErrorCode::mismatch, "ranks called different operations: " + call(rank, called, number) +
                                        ", " + call(other_rank, other_called, other_number));
}

void NativeTask::begin(const Request& request, const Signature& called, std::uint64_t its_number) {
  request_ = request;
  signature = called;
  number = its_number;
  state = State::queued;
  plan.reset();
  begin_ns = trace::now_ns();
  arrived_ns = 0;
  waiting_since_ns = 0;
  warned = false;
  told_to = -1;
  compared_ = false;
}

bool NativeTask::advance(bool may_use_channels, std::uint64_t& own_work_ns) {
  const State before = state;
  if (state == State::queued && !leave_queue()) return false;
  if (state == State::announced && !learn_plan()) return state != before;
  if (state == State::planned) {
    if (!may_use_channels && !is_message()) return state != before;
    run();
  }
  if (state != State::running) return state != before;
  if (execution_.advance(own_work_ns)) state = State::complete;
  return execution_.has_moved() || state != before;
}

bool NativeTask::leave_queue() {
  Arrivals* arrivals = backend_.arrivals();
  if (is_message() || arrivals == nullptr) {
    Signature call = signature;
    call.operation = is_message() ? Operation::send : signature.operation;
    plan = backend_.plans().find(call, BufferClass::private_memory,
                                 signature.operation == Operation::send ? request_.peer : backend_.rank());
    state = State::planned;
    return true;
  }
  if (!arrivals->lane_is_free(number)) return false;
  arrivals->announce(number, signature);
  if (backend_.plans().is_one_shot(signature)) {
    plan = backend_.plans().find(signature, BufferClass::private_memory, 0);
    run();
  } else {
    arrive(1);
    state = State::announced;
  }
  return true;
}

bool NativeTask::learn_plan() {
  if (!await(1)) return false;
  bool all_in_arena = true;
  for (int rank = 0; rank < backend_.ranks(); ++rank) {
    all_in_arena = all_in_arena && backend_.arrivals()->signature(number, rank).in_arena != 0;
  }
  plan = backend_.plans().find(signature, all_in_arena ? BufferClass::arena : BufferClass::private_memory, 0);
  state = State::planned;
  if (!plan->schedule.uses_channels()) run();
  return true;
}

void NativeTask::run() {
  bind();
  Signature call = signature;
  if (is_message()) call.operation = Operation::send;  // what both ends call it on the wire
  execution_.begin(plan->schedule, *this, backend_.rank(), number, call);
  state = State::running;
}

void NativeTask::bind() {
  Bindings& bindings = execution_.bindings();
  const auto ranks = static_cast<std::size_t>(backend_.ranks());
  bindings.element_bytes = size_of(signature.dtype);
  bindings.dtype = signature.dtype;
  bindings.reduce_op = signature.reduce_op;
  bindings.scale = signature.reduce_op == ReduceOp::average ? 1.0 / static_cast<double>(ranks) : 1.0;
  bindings.input = request_.input;
  bindings.outputs.resize(ranks);
  bindings.slots.resize(ranks);
  Arrivals* arrivals = is_message() ? nullptr : backend_.arrivals();
  for (int rank = 0; rank < backend_.ranks(); ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (arrivals == nullptr) continue;
    bindings.slots[index] = arrivals->slot(number, rank, signature.elements * bindings.element_bytes);
    if (compared_)
      bindings.outputs[index] =
          backend_.region().arena(rank) + arrivals->signature(number, rank).arena_offset;
  }
  bindings.outputs[static_cast<std::size_t>(backend_.rank())] = request_.output;
}

Link& NativeTask::link(int peer) {
  return backend_.link(peer, is_message() ? Purpose::point_to_point : Purpose::collective);
}

void NativeTask::arrive(std::uint32_t stage) { backend_.arrivals()->arrive(number, stage); }

bool NativeTask::await(std::uint32_t stage) {
  if (!backend_.arrivals()->have_all_arrived(number, stage)) return false;
  if (!compared_) {
    compared_ = true;
    arrived_ns = trace::now_ns();
    compare_signatures();
  }
  return true;
}

void NativeTask::compare_signatures() const {
  for (int rank = 0; rank < backend_.ranks(); ++rank) {
    const Signature& other = backend_.arrivals()->signature(number, rank);
    if (!signature.matches(other)) {
      const int least = std::min(rank, backend_.rank());
      const int greatest = std::max(rank, backend_.rank());
      throw mismatch(backend_.world_rank(least), backend_.arrivals()->signature(number, least), number,
                     backend_.world_rank(greatest), backend_.arrivals()->signature(number, greatest), number);
    }
  }
}

std::vector<int> NativeTask::missing() const {
  std::vector<int> ranks;
  const auto add_late = [&](std::uint32_t stage) {
    for (int rank = 0; rank < backend_.ranks(); ++rank) {
      if (!backend_.arrivals()->has_arrived(number, stage, rank)) ranks.push_back(rank);
    }
  };
  if (state == State::queued && backend_.arrivals() != nullptr) {
    for (int rank = 0; rank < backend_.ranks(); ++rank) {
      if (backend_.region().progress(rank).completed.load(std::memory_order_acquire) + lane_count <= number) {
        ranks.push_back(rank);
      }
    }
  } else if (state == State::announced) {
    add_late(1);
  } else if (state == State::running) {
    const Step& step = execution_.current();
    if (step.kind == StepKind::await) add_late(step.target);
    if (step.kind == StepKind::wait) ranks.push_back(static_cast<int>(execution_.awaited().target));
  }
  std::erase(ranks, backend_.rank());
  return ranks;
}

}  // namespace lockstep
