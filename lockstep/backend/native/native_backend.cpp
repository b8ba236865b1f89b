#include "lockstep/backend/native/native_backend.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "lockstep/backend/native/forked.h"
#include "lockstep/backend/native/native_work.h"
#include "lockstep/base/hash.h"
#include "lockstep/memory/arena.h"

namespace lockstep {
namespace {

// Before a small call becomes a work of its own: a microsecond or two.
constexpr int short_looks = 128;
// Collectives of so few bytes are over before a work of their own were made.
constexpr std::size_t short_bytes = 256 * 1024;
// Larger messages take so long that what a work of their own costs does not matter.
constexpr std::size_t small_message_bytes = 4096;

const char* remedy(ErrorCode code) {
  switch (code) {
    case ErrorCode::mismatch:
      return "make all ranks call the same operations with the same sizes in the same order";
    case ErrorCode::timeout: return "see what that rank is doing, or raise LOCKSTEP_TIMEOUT";
    case ErrorCode::peer_lost:
      return "look at what that rank printed last, and start again from the last checkpoint";
    default: return "start again from the last checkpoint";
  }
}

}  // namespace

std::shared_ptr<NativeBackend> NativeBackend::make(NativeOptions options) {
  std::shared_ptr<NativeBackend> backend(new NativeBackend(std::move(options)));
  backend->options_.progress->attach(*backend);
  return backend;
}

NativeBackend::NativeBackend(NativeOptions options)
    : options_(std::move(options)),
      arena_(std::make_shared<Arena>(options_.region, options_.region_rank)),
      plans_(options_.rank, static_cast<int>(options_.world_of.size()),
             {.one_host = options_.one_host,
              .slot_bytes = slot_bytes,
              .ranks_per_node = options_.ranks_per_node},
             options_.tuning, options_.one_host ? staging_bytes : 0),
      mailbox_(
          options_.rank, static_cast<int>(options_.world_of.size()),
          [this](int peer) -> Channel& { return options_.transport->channel(peer, Purpose::point_to_point); },
          options_.mailbox_bytes, lending()),
      group_number_(fnv1a_32(options_.name)) {
  watch_for_forks();
  name_place_ = options_.group_names->enter({group_number_, ranks(), options_.rank, options_.name});
  if (options_.one_host) {
    arrivals_.emplace(options_.region, options_.rank, ranks(), options_.page->doorbell());
    small_call_.emplace(*arrivals_, options_.rank, ranks());
  }
}

/// Through arenas, where all ranks have one here.
Lending NativeBackend::lending() const {
  if (!options_.one_host) return {};
  return {.least_bytes = ring_bytes,
          .place_of = [this](std::span<const std::byte> bytes) { return arena_->offset_of(bytes); },
          .memory_of = [this](int rank, std::uint64_t place,
                              std::uint64_t bytes) -> std::optional<std::span<const std::byte>> {
            const std::uint64_t all = options_.region->arena_bytes();
            if (place > all || bytes > all - place) return std::nullopt;
            return std::span<const std::byte>(options_.region->arena(rank) + place, bytes);
          },
          .require_sound =
              [this] {
                if (const auto cause = options_.region->first_cause().get())
                  throw Error(cause->code, cause->text, cause->peer());
              }};
}

NativeBackend::~NativeBackend() {
  options_.progress->detach(*this);
  options_.group_names->leave(name_place_);
}

void NativeBackend::leave() {
  if (is_forked_child()) return;
  const auto lock = options_.progress->lock();
  options_.transport->say_goodbye();
}

std::unique_ptr<NativeTask> NativeBackend::take_task() {
  if (idle_tasks_.empty()) return std::make_unique<NativeTask>(*this);
  auto task = std::move(idle_tasks_.back());
  idle_tasks_.pop_back();
  return task;
}

void NativeBackend::recycle(std::unique_ptr<NativeTask> task) {
  const auto lock = options_.progress->lock();
  std::erase(active_, task.get());
  idle_tasks_.push_back(std::move(task));
}

std::unique_ptr<PendingWork> NativeBackend::submit(const Request& request) {
  if (is_forked_child()) throw_forked(std::string(to_string(request.signature.operation)));
  const auto lock = options_.progress->lock();
  if (is_message(request.signature.operation)) {
    notice_failure_elsewhere();
    if (pass_small_message(request)) return nullptr;
  } else if (auto small = submit_small(request)) {
    return std::move(*small);
  }
  Signature signature = request.signature;
  BufferOffsets offsets;
  if (options_.one_host && !is_message(signature.operation)) {
    if (const auto offset = arena_->offset_of(request.input)) {
      signature.flags |= Signature::input_in_arena;
      offsets.input = *offset;
    }
    if (const auto offset = arena_->offset_of(request.output)) {
      signature.flags |= Signature::output_in_arena;
      offsets.output = *offset;
    }
  }
  std::uint64_t& counter = counter_of(request);
  if (failure_) throw make_error(signature, counter);
  const bool is_short =
      may_be_quick() && std::max(request.input.size(), request.output.size()) <= short_bytes;
  auto task = take_task();
  task->begin(request, signature, offsets, counter++);
  if (!arrivals_ && !task->is_message()) calls_.note(task->number, signature);
  active_.push_back(task.get());
  advance();
  if (is_short) look_shortly_at(*task);
  return pending(std::move(task));
}

void NativeBackend::look_shortly_at(const NativeTask& task) {
  for (int look = 0; look < short_looks && !task.is_over();) look = advance() ? 0 : look + 1;
}

std::unique_ptr<PendingWork> NativeBackend::pending(std::unique_ptr<NativeTask> task) {
  if (task->state == NativeTask::State::complete) {
    idle_tasks_.push_back(std::move(task));
    return nullptr;
  }
  if (!task->is_over()) task->open_call = options_.open_calls->open(task->describe(group_number_));
  if (!active_.empty()) options_.progress->wake_thread();
  return std::make_unique<NativeWork>(shared_from_this(), std::move(task));
}

std::optional<std::unique_ptr<PendingWork>> NativeBackend::submit_small(const Request& request) {
  if (!may_be_quick()) return std::nullopt;
  const std::uint64_t number = next_collective_;
  if (!arrivals_->lane_is_free(number)) return std::nullopt;
  if (!small_call_->recall(request)) {
    const auto& plan = plans_.find_one_shot(request.signature, request.element_bytes, request.counts);
    if (!plan) return std::nullopt;
    small_call_->learn(request, plan);
  }
  ++next_collective_;
  small_call_->begin(request, number);
  if (!small_call_->is_met(short_looks)) {
    auto task = take_task();
    task->go_on(request, small_call_->plan(), number, small_call_->next_step(), small_call_->begin_ns());
    active_.push_back(task.get());
    advance();
    return pending(std::move(task));
  }
  small_call_->finish();
  complete(number);
  record_quick(request, number, small_call_->begin_ns(), small_call_->arrived_ns(),
               number_in_record(*small_call_->plan()));
  return std::unique_ptr<PendingWork>();
}

// A collective waits for the others, and looks for this then; a send may have nothing to wait for.
void NativeBackend::notice_failure_elsewhere() {
  const FirstCause& elsewhere = options_.region->first_cause();
  if (failure_ || !elsewhere.is_set()) return;
  if (auto cause = elsewhere.get()) fail(std::move(*cause));
}

bool NativeBackend::may_be_quick() const {
  // Where ranks share cores, whoever is awaited may need this one.
  return options_.one_host && active_.empty() && !failure_ && options_.progress->policy().spins > 0;
}

void NativeBackend::record_quick(const Request& request, std::uint64_t number, std::uint64_t begin_ns,
                                 std::uint64_t end_ns, std::uint64_t algorithm) {
  options_.recorder->record(completed(request.signature, number, group_number_, begin_ns, end_ns, end_ns),
                            algorithm);
}

bool NativeBackend::pass_small_message(const Request& request) {
  const bool sends = request.signature.operation == Operation::send;
  const std::size_t bytes = sends ? request.input.size() : request.output.size();
  if (bytes > small_message_bytes || !may_be_quick()) return false;
  std::uint64_t& counter = counter_of(request);
  try {
    if (sends) {
      if (!mailbox_.send_now(outgoing(request, counter))) return false;
      const std::uint64_t now = trace::record_now_ns();
      record_quick(request, counter, now, now, 0);
    } else {
      Incoming receive = incoming(request, counter);
      const std::uint64_t begin_ns = trace::record_now_ns();
      std::uint64_t last_look_ns = begin_ns;
      if (!mailbox_.receive_now(receive, short_looks, last_look_ns)) return false;
      if (request.received != nullptr) *request.received = receive.from;
      record_quick(request, counter, begin_ns, last_look_ns, 0);
    }
  } catch (const Error& error) {
    fail(cause_of(error));
    return false;
  }
  ++counter;
  return true;
}

std::uint64_t& NativeBackend::counter_of(const Request& request) {
  switch (request.signature.operation) {
    case Operation::send: return next_sent_[request.peer];
    case Operation::receive: return next_received_[request.peer];
    default: return next_collective_;
  }
}

void NativeBackend::poll() { options_.progress->poll(); }

std::uint64_t NativeBackend::own_work_ns() const { return options_.progress->own_work_ns().load(); }

ArenaBlock NativeBackend::allocate(std::size_t bytes) {
  if (is_forked_child()) throw_forked("allocate");  // the parent's memory, too
  return arena_->allocate(bytes);
}

Link& NativeBackend::link(int peer) {
  const auto found = links_.find(peer);
  if (found != links_.end()) return found->second;
  return links_.emplace(peer, Link(options_.transport->channel(peer, Purpose::collective))).first->second;
}

bool NativeBackend::advance_links() {
  bool moved = false;
  for (auto& [peer, link] : links_) {
    if (!link.is_sending() && !link.is_receiving()) continue;
    moved = link.advance() || moved;
    if (const auto& unexpected = link.unexpected()) throw calls_.explain(peer, *unexpected);
  }
  moved = mailbox_.advance() || moved;
  if (const auto& misfit = mailbox_.misfit()) {
    throw mismatch(world_rank(rank()), misfit->receive->signature, misfit->receive->number,
                   world_rank(misfit->source), misfit->arrived.signature, misfit->arrived.sequence);
  }
  return moved;
}

bool NativeBackend::advance() {
  bool moved = false;
  std::uint64_t own_work_ns = 0;
  try {
    moved = advance_links();
    bool is_alone = true;
    for (std::size_t index = 0; index < active_.size();) {
      NativeTask& task = *active_[index];
      if (task.advance(is_alone, own_work_ns)) {
        moved = true;
        task.waiting_since_ns = 0;
      }
      is_alone = is_alone && !task.is_exclusive();
      if (task.is_over()) {
        finish(task);
        if (index == 0) {
          active_.pop_front();
        } else {
          active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(index));
        }
      } else {
        ++index;
      }
    }
  } catch (const Error& error) {
    fail(cause_of(error));
    moved = true;
  }
  if (own_work_ns > 0) options_.progress->own_work_ns() += own_work_ns;
  if (active_.empty() && told_waiting_) {
    options_.transport->tell_waiting(-1);
    told_waiting_ = false;
  }
  return moved;
}

void NativeBackend::finish(NativeTask& task) {
  if (!task.is_message() && !failure_) complete(task.number);
  const trace::CompletedCollective event = task.make_event(group_number_);
  options_.recorder->record(event, task.plan ? number_in_record(*task.plan) : 0);
  if (event.failed != 0) {
    if (task.open_call == trace::OpenCalls::nowhere)
      task.open_call = options_.open_calls->open(task.describe(group_number_));
    options_.open_calls->fail(task.open_call, event.end_ns);
  } else {
    options_.open_calls->close(task.open_call);
  }
}

std::uint64_t NativeBackend::number_in_record(const Plan& plan) {
  const auto index = static_cast<std::size_t>(plan.choice - all_algorithms().data());
  if (index >= numbers_in_record_.size()) numbers_in_record_.resize(index + 1);
  std::uint64_t& number = numbers_in_record_[index];
  if (number == 0) number = options_.recorder->number_of(plan.choice->name);
  return number;
}

void NativeBackend::complete(std::uint64_t number) {
  if (number == completed_through_ && completed_.empty()) {
    ++completed_through_;
  } else {
    const std::size_t index = number - completed_through_;
    if (completed_.size() <= index) completed_.resize(index + 1);
    completed_[index] = true;
    while (!completed_.empty() && completed_.front()) {
      completed_.pop_front();
      ++completed_through_;
    }
  }
  if (arrivals_) arrivals_->complete_through(completed_through_);
}

void NativeBackend::fail(const Error& error) {
  const auto lock = options_.progress->lock();
  fail(cause_of(error));
}

void NativeBackend::fail(FirstCause::Cause cause) {
  if (failure_) return;
  options_.region->first_cause().set(cause);
  if (auto earlier = options_.region->first_cause().get()) cause = std::move(*earlier);
  failure_ = cause;
  arena_->quarantine();
  options_.transport->tell_failure(cause);
  for (NativeTask* task : active_) {
    task->set_failed();
    finish(*task);
  }
  active_.clear();
  mailbox_.clear();
}

Error NativeBackend::make_error(const Signature& signature, std::uint64_t number) const {
  const std::string text = to_string(signature, number) + " in group \"" + options_.name +
                           "\": " + failure_->text + "; the group is closed: " + remedy(failure_->code);
  return Error(failure_->code, text, failure_->peer());
}

Error NativeBackend::error_of(const NativeTask& task) const {
  const auto lock = options_.progress->lock();
  return make_error(task.signature, task.number);
}

void NativeBackend::abandon(const NativeTask& task) noexcept {
  const auto lock = options_.progress->lock();
  if (task.is_over()) return;
  give_up(" " + std::string(to_string(task.signature.operation)) + " #" + std::to_string(task.number) +
          ": an exception there ended it early");
}

void NativeBackend::abort(const std::string& reason) {
  if (is_forked_child()) return;
  const auto lock = options_.progress->lock();
  give_up(": " + reason);
}

void NativeBackend::give_up(const std::string& what) {
  const int me = world_rank(rank());
  fail({ErrorCode::peer_lost, me, me, "rank " + std::to_string(me) + " gave up" + what});
}

FirstCause::Cause NativeBackend::cause_of(const Error& error) const {
  const bool ours = error.code() == ErrorCode::mismatch;
  return {error.code(), ours ? -1 : error.peer().value_or(-1), world_rank(rank()), error.what()};
}

void NativeBackend::add_wait_descriptors(std::vector<pollfd>& descriptors) {
  const auto mine = options_.transport->wait_descriptors();
  descriptors.insert(descriptors.end(), mine.begin(), mine.end());
}

}  // namespace lockstep
