#include "lockstep/engine/named_set.h"

#include <algorithm>
#include <utility>

#include "lockstep/backend/forked.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/log.h"
#include "lockstep/engine/named_trace.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/earlier_deadline.h"
#include "lockstep/group/gpu_calls.h"
#include "lockstep/group/impl.h"
#include "lockstep/kernel/reduce.h"
#include "lockstep/trace/clock.h"

namespace lockstep {
namespace {

constexpr int note_tag = 0, body_tag = 1;
constexpr std::size_t most_unsent_bytes = std::size_t{1} << 20;

std::vector<int> world_ranks_of(const Group& group) {
  std::vector<int> ranks;
  for (int rank = 0; rank < group.size(); ++rank) ranks.push_back(group.world_rank(rank));
  return ranks;
}

std::span<NamedNote> one(NamedNote& note) { return {&note, 1}; }

}  // namespace

NamedSet::NamedSet(Group group, const NamedOptions& options) : group_(std::move(group)) {
  if (decides() && group_.size() > 1) negotiation_.emplace(world_ranks_of(group_), options.fusion_bytes);
}

NamedSet::~NamedSet() { deliver(); }

/// Throws before anything is sent what would otherwise fail later, and on all ranks.
void NamedSet::require_possible(const NamedRequest& request) const {
  require_sound(request);
  if (has_root(request.operation) && (request.root < 0 || request.root >= group_.size())) {
    throw_invalid_argument(to_string(request) + ": the group has ranks 0 to " +
                           std::to_string(group_.size() - 1));
  }
  if (reduces(request.operation) && !kernel::supports(request.dtype, request.reduce_op)) {
    throw_invalid_argument(to_string(request) + ": " + std::string(to_string(request.dtype)) + " has no " +
                           std::string(to_string(request.reduce_op)));
  }
}

std::shared_ptr<NamedOperation> NamedSet::submit(NamedRequest request, NamedBuffers buffers) {
  if (closed_) std::rethrow_exception(closed_);
  require_possible(request);
  if (joining_)
    throw_invalid_argument(to_string(request) + " comes after join(): wait until all ranks have joined");
  if (waiting_.contains(request.name) || started_.contains(request.name)) {
    throw_invalid_argument(to_string(request) +
                           " is under way already on this rank: wait for it first, or give this one another "
                           "name");
  }
  auto operation = std::make_shared<NamedOperation>();
  operation->request = std::move(request);
  operation->buffers = std::move(buffers);
  operation->submitted_ns = trace::now_ns();
  operation->request.is_on_gpu = false;
  const bool has_buffers = operation->request.operation != Operation::barrier;
  if (has_buffers && operation->buffers.place.is_on_gpu()) put_on_gpu(*operation);
  const NamedRequest& mine = operation->request;
  waiting_.emplace(mine.name, operation);
  ++statistics_.submitted;
  if (group_.size() == 1) {
    Decision decision{.request = mine};
    if (!mine.rows.empty()) decision.rows = {mine.rows};
    try {
      carry_out({std::move(decision)});
      (void)finish();
    } catch (...) {
      fail(std::current_exception());
    }
    return operation;
  }
  const auto place = numbers_.find(mine.name);
  const Known* known = place == numbers_.end() ? nullptr : &*known_[place->second];
  const auto own = static_cast<std::size_t>(group_.rank());
  const bool is_known = known != nullptr && known->request.fits(mine) &&
                        known->request.is_on_gpu == mine.is_on_gpu &&
                        (mine.rows.empty() || known->rows[own] == mine.rows);
  if (is_known) ++statistics_.by_number;
  if (negotiation_ && is_known) {
    negotiation_->submit_known(0, place->second, Clock::now());
  } else if (negotiation_) {
    negotiation_->submit(0, mine, Clock::now());
  } else if (is_known) {
    if (unsent_.words_used == NamedNote::most_words) flush();
    unsent_.words[unsent_.words_used++] = place->second;
  } else {
    if (unsent_body_.size() > most_unsent_bytes) flush();
    unsent_body_ += encode(NamedSubmission{.requests = {mine}});
  }
  return operation;
}

/// Its buffers are ready when the program's stream is where it is now.
void NamedSet::put_on_gpu(NamedOperation& operation) {
  NamedRequest& request = operation.request;
  const MemoryPlace& place = operation.buffers.place;
  const auto known = gpus_.find(place.device);
  const auto gpu = known != gpus_.end() ? known->second : std::make_shared<NamedGpu>(place.device);
  for (const auto buffer : operation.buffers.in_place) gpu->require_own(buffer, to_string(request));
  gpu->require_own(operation.buffers.input, to_string(request));
  operation.mark = gpu->mark(place.stream);
  gpus_.emplace(place.device, gpu);
  if (!gpu_) gpu_ = gpu;
  request.is_on_gpu =
      gpu == gpu_ && (!reduces(request.operation) || can_reduce_on_gpu(request.dtype, request.reduce_op));
}

void NamedSet::flush() {
  if (unsent_.words_used == 0 && unsent_body_.empty()) return;
  send(0, std::exchange(unsent_, {}), std::exchange(unsent_body_, {}));
}

std::shared_ptr<NamedOperation> NamedSet::join() {
  if (closed_) std::rethrow_exception(closed_);
  if (joining_) throw_invalid_argument("join() is under way already on this rank");
  if (!waiting_.empty()) {
    throw_invalid_argument("join() comes while " + to_string(waiting_.begin()->second->request) +
                           " is under way on this rank: wait for it first");
  }
  auto operation = std::make_shared<NamedOperation>();
  operation->request.name = "join";
  if (group_.size() == 1) {
    operation->end();
    return operation;
  }
  joining_ = operation;
  if (negotiation_) {
    negotiation_->join(0);
  } else {
    unsent_body_ += encode(NamedSubmission{.joins = true});
  }
  return operation;
}

bool NamedSet::is_idle() const { return waiting_.empty() && started_.empty() && !joining_; }

bool NamedSet::expects_note() const {
  if (closed_) return false;
  return negotiation_ ? negotiation_->awaits_others(0) : !waiting_.empty() || joining_ != nullptr;
}

bool NamedSet::advance() noexcept {
  if (failure_) return false;
  try {
    if (group_.size() == 1) {
      const bool has_started = begin_delayed();
      return finish() || has_started;
    }
    flush();
    bool has_moved = receive();
    has_moved |= decide();
    has_moved |= begin_delayed();
    has_moved |= finish();
    while (!outgoing_.empty() && outgoing_.front().note_work.test() && outgoing_.front().body_work.test())
      outgoing_.pop_front();
    return has_moved;
  } catch (...) {
    fail(std::current_exception());
    return true;
  }
}

/// A receive is posted only while something must still come: so none is left over in the end.
bool NamedSet::receive() {
  bool has_moved = false;
  while (true) {
    if (!incoming_.is_posted) {
      if (!expects_note()) return has_moved;
      incoming_.work =
          recv(group_, one(incoming_.note), decides() ? any_source : 0, note_tag, &incoming_.from);
      incoming_.is_posted = true;
    }
    if (!incoming_.work.test()) return has_moved;
    has_moved = true;
    if (!std::exchange(incoming_.has_note, true)) {
      require_sound(incoming_.note);
      incoming_.body.assign(incoming_.note.body_bytes, '\0');
      if (!incoming_.body.empty()) {
        incoming_.work = recv(group_, incoming_.body, incoming_.from.source, body_tag);
        continue;
      }
    }
    incoming_.is_posted = incoming_.has_note = false;
    take_note();
  }
}

void NamedSet::take_note() {
  if (incoming_.from.source == group_.rank()) return;  // see look()
  if (negotiation_) {
    take_submission(incoming_.from.source);
  } else {
    take_decisions();
  }
}

void NamedSet::take_submission(int rank) {
  const auto now = Clock::now();
  const NamedNote& note = incoming_.note;
  for (std::size_t i = 0; i < note.words_used; ++i) negotiation_->submit_known(rank, note.words[i], now);
  const auto submission = decode_submission(incoming_.body);
  for (const auto& request : submission.requests) negotiation_->submit(rank, request, now);
  if (submission.joins) negotiation_->join(rank);
}

void NamedSet::take_decisions() {
  std::vector<Decision> decisions;
  const NamedNote& note = incoming_.note;
  for (std::size_t i = 0; i < note.words_used; ++i) {
    Decision& decision = decisions.emplace_back();
    decision.is_known = true;
    decision.number = note.words[i] & ~NamedNote::with_previous;
    decision.with_previous = (note.words[i] & NamedNote::with_previous) != 0;
  }
  auto described = decode_decisions(incoming_.body, static_cast<std::size_t>(group_.size()));
  std::ranges::move(described, std::back_inserter(decisions));
  carry_out(std::move(decisions));
}

bool NamedSet::decide() {
  if (!negotiation_) return false;
  auto decisions = negotiation_->take_decisions();
  if (decisions.empty()) return false;
  tell_all(decisions);
  carry_out(std::move(decisions));
  return true;
}

void NamedSet::tell_all(const std::vector<Decision>& decisions) {
  NamedNote note;
  std::string body;
  const bool are_known = std::ranges::all_of(decisions, &Decision::is_known);
  if (are_known && decisions.size() <= NamedNote::most_words) {
    for (const Decision& decision : decisions)
      note.words[note.words_used++] =
          decision.number | (decision.with_previous ? NamedNote::with_previous : 0);
  } else {
    body = encode(decisions);
  }
  for (int rank = 1; rank < group_.size(); ++rank) send(rank, note, body);
}

void NamedSet::send(int rank, const NamedNote& note, const std::string& body) {
  Outgoing& out = outgoing_.emplace_back();
  out.note = note;
  out.body = body;
  if (body.size() > most_named_body_bytes)
    throw_invalid_argument("named operations of " + std::to_string(body.size()) +
                           " bytes of names and shapes");
  out.note.body_bytes = static_cast<std::uint32_t>(body.size());
  out.note_work = lockstep::send(group_, one(out.note), rank, note_tag);
  if (!body.empty()) out.body_work = lockstep::send(group_, out.body, rank, body_tag);
  ++statistics_.notes_sent;
  statistics_.note_bytes += sizeof(NamedNote) + body.size();
}

std::shared_ptr<NamedOperation> NamedSet::take_waiting(const std::string& name) {
  const auto place = waiting_.find(name);
  if (place == waiting_.end()) return nullptr;
  auto operation = std::move(place->second);
  waiting_.erase(place);
  return operation;
}

void NamedSet::carry_out(std::vector<Decision> decisions) {
  for (Decision& decision : decisions) {
    if (decision.kind != Decision::Kind::start || decision.number == Decision::no_number) continue;
    if (decision.number >= known_.size()) known_.resize(decision.number + std::size_t{1});
    auto& known = known_[decision.number];
    if (!decision.is_known) {
      numbers_[decision.request.name] = decision.number;
      known = Known{decision.request, decision.rows};
    } else if (!known) {
      throw Error(ErrorCode::corrupt_data, "named operations: rank 0 decides on number " +
                                               std::to_string(decision.number) +
                                               ", which this rank does not know");
    } else if (!negotiation_) {
      decision.request = known->request;
      decision.rows = known->rows;
    }
  }
  for (std::size_t i = 0; i < decisions.size();) {
    const Decision& first = decisions[i];
    std::size_t end = i + 1;
    while (end < decisions.size() && decisions[end].with_previous) ++end;
    if (first.kind == Decision::Kind::start) {
      start(std::span(decisions).subspan(i, end - i));
    } else if (first.kind == Decision::Kind::refuse) {
      refuse(first);
    } else if (joining_) {
      last_joined_ = first.last_joined;
      std::exchange(joining_, nullptr)->end();
    }
    i = end;
  }
}

/// After a time-out nobody knows who still waits for what: nothing can be submitted any more.
void NamedSet::refuse(const Decision& decision) {
  const auto why = std::make_exception_ptr(Error(decision.code, decision.why, decision.peer));
  if (decision.code != ErrorCode::timeout) {
    if (const auto operation = take_waiting(decision.request.name)) operation->end(why);
    return;
  }
  closed_ = why;
  for (const auto& [name, operation] : waiting_) operation->end(why);
  waiting_.clear();
  if (joining_) std::exchange(joining_, nullptr)->end(why);
}

void NamedSet::start(std::span<const Decision> decisions) {
  if (closed_)
    return;  // by a time-out that was decided just before: this rank's are over, and all ranks see it here
  Operations operations;
  const std::uint64_t now_ns = trace::now_ns();
  for (const Decision& decision : decisions) {
    auto operation = take_waiting(decision.request.name);
    if (operation) {
      operation->started_ns = now_ns;
      started_.emplace(operation->request.name, operation);
    }
    operations.push_back(std::move(operation));
  }
  ++statistics_.calls;
  if (!delayed_.empty() || (is_on_gpu(decisions) && !knows_gpu())) {
    delayed_.push_back({{decisions.begin(), decisions.end()}, std::move(operations)});
  } else {
    begin(decisions, std::move(operations));
  }
}

bool NamedSet::is_on_gpu(std::span<const Decision> decisions) const {
  return decisions.front().request.is_on_gpu && gpu_ != nullptr;
}

/// On a GPU a call may wait for ranks that wait for this one in another set, where calls began in another order: it has a thread.
void NamedSet::begin(std::span<const Decision> decisions, Operations operations) {
  if (!is_on_gpu(decisions) || !*takes_gpu_) {
    try {
      running_.push_back(start_call(group_, decisions, std::move(operations), nullptr));
    } catch (const std::exception& error) {
      group_.abort(error);  // the others wait for this rank
      throw;
    }
    return;
  }
  RunningCall& call = running_.emplace_back();
  call.operations = operations;
  call.beginning = beginner_->run([group = group_, decided = std::vector(decisions.begin(), decisions.end()),
                                   operations = std::move(operations), gpu = gpu_]() mutable {
    return start_call(group, decided, std::move(operations), gpu).work;
  });
}

bool NamedSet::begin_delayed() {
  if (delayed_.empty() || !knows_gpu()) return false;
  for (auto& [decisions, operations] : std::exchange(delayed_, {})) begin(decisions, std::move(operations));
  return true;
}

/// Whether it is known if the ranks' GPUs reach each other, which all ranks see alike.
bool NamedSet::knows_gpu() {
  if (takes_gpu_) return true;
  if (!beginner_) {
    beginner_ = std::make_unique<InOrderThread>("lockstep-begin");
    connected_ = beginner_->run([group = group_, gpu = gpu_] {
      std::string why;
      // An engine connects the ranks by its first call.
      if (can_call_on_gpu(group, gpu->device(), &why)) barrier(group, gpu->place()).synchronize();
      return why;
    });
  }
  if (connected_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
  const std::string why = connected_.get();
  takes_gpu_ = why.empty();
  if (!why.empty()) say_through_main_memory(group_, why);
  return true;
}

bool NamedSet::is_over(RunningCall& call) {
  if (call.beginning.valid()) {
    if (call.beginning.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
    try {
      call.work = call.beginning.get();
    } catch (const std::exception& error) {
      group_.abort(error);  // the others wait for this rank
      throw;
    }
  }
  return call.work.test();
}

bool NamedSet::finish() {
  bool has_moved = false;
  while (!running_.empty() && is_over(running_.front())) {
    running_.front().put_back();
    for (const auto& operation : running_.front().operations) {
      if (!operation) continue;
      started_.erase(operation->request.name);
      trace_operation(*operation);
      operation->end();
    }
    running_.pop_front();
    has_moved = true;
  }
  return has_moved;
}

void NamedSet::sleep(std::chrono::nanoseconds at_most) noexcept {
  if (failure_) return;
  try {
    if (!delayed_.empty() && connected_.valid()) {
      (void)connected_.wait_for(at_most);
    } else if (!running_.empty() && running_.front().beginning.valid()) {
      (void)running_.front().beginning.wait_for(at_most);
    } else if (!running_.empty()) {
      (void)running_.front().work.wait_for(at_most);
    } else if (incoming_.is_posted) {
      (void)incoming_.work.wait_for(at_most);
    }
  } catch (...) {
    fail(std::current_exception());
  }
}

void NamedSet::look() {
  if (closed_ || !negotiation_) return;
  const GroupOptions& options = group_.impl().context->options;
  const auto now = Clock::now();
  if (options.warn_after < Clock::duration::max()) {
    for (const auto& line : negotiation_->stalled_since(now - options.warn_after)) log::warning(line);
  }
  if (options.timeout == std::chrono::nanoseconds::max()) return;
  // Before the group's own time-out, which would blame this rank: early enough that the word goes round on a
  // busy machine.
  const auto patience = earlier_than(options.timeout);
  negotiation_->refuse_stalled_since(now - patience, patience);
  if (advance() && incoming_.is_posted && !expects_note()) send(0, {}, {});  // ends the receive
}

/// A rank that leaves by an exception may be the only one that knows why: what it has to tell the others is
/// on its way first.
void NamedSet::deliver() noexcept {
  if (failure_) return;
  const Deadline deadline = Deadline::after(group_.impl().context->options.timeout / 20);
  try {
    for (Outgoing& out : outgoing_) {
      for (Work* work : {&out.note_work, &out.body_work}) {
        if (!work->wait_for(deadline.remaining())) return;
      }
    }
    outgoing_.clear();
  } catch (...) {
    fail(std::current_exception());
  }
}

void NamedSet::abandon() noexcept {
  deliver();
  const std::string why = "named operations were left by an exception";
  group_.abort(why);
  fail(std::make_exception_ptr(Error(ErrorCode::aborted, why)));
}

/// The group's own time-out comes first where this rank did not run for that long. Then, too, it is said which operations the
/// others have not submitted.
std::exception_ptr NamedSet::with_open_operations(const std::exception_ptr& why) const noexcept try {
  std::rethrow_exception(why);
} catch (const Error& error) {
  if (error.code() != ErrorCode::timeout || !negotiation_) return why;
  std::string text;
  for (const std::string& line : negotiation_->open()) text += line + "; ";
  return text.empty() ? why : std::make_exception_ptr(Error(error.code(), text + error.what(), error.peer()));
} catch (...) {
  return why;
}

/// Afterwards no thread but this one uses what the program has given. Each call is begun, or was refused, since the group is closed.
void NamedSet::await_beginnings() noexcept {
  if (!beginner_ || is_forked_child()) return;
  group_.abort("its named operations have failed");
  for (RunningCall& running : running_) {
    try {
      if (running.beginning.valid()) running.work = running.beginning.get();
    } catch (const std::exception& error) {
      log::debug(error.what());
    }
  }
}

/// Ends every operation. What is under way closes the group, so that no other rank waits for it.
void NamedSet::fail(const std::exception_ptr& told) noexcept {
  if (failure_) return;
  const std::exception_ptr why = with_open_operations(told);
  failure_ = closed_ = why;
  await_beginnings();
  std::vector<Work> works;
  for (RunningCall& running : running_) works.push_back(std::move(running.work));
  works.push_back(std::move(incoming_.work));
  for (Outgoing& out : outgoing_) {
    works.push_back(std::move(out.note_work));
    works.push_back(std::move(out.body_work));
  }
  for (Work& work : works) work.abandon();
  for (const auto& [name, operation] : started_) operation->end(why);
  for (const auto& [name, operation] : waiting_) operation->end(why);
  if (joining_) joining_->end(why);
  running_.clear();
  delayed_.clear();
  waiting_.clear();
  started_.clear();
  joining_.reset();
}

}  // namespace lockstep
