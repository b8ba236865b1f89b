#include "lockstep/backend/native/native_backend.h"

#include <algorithm>

#include "lockstep/backend/forked.h"
#include "lockstep/base/keep_for_ever.h"

namespace lockstep {
namespace {

// Collectives of no more bytes than this are over sooner than a work of their own is made.
constexpr std::size_t short_bytes = 256 * 1024;
// Below, asking whether memory is still what was registered takes longer than what it gains (docs/decisions/0040).
constexpr std::size_t least_registered_bytes = 32 * 1024;

const char* remedy(ErrorCode code, bool goes_on) {
  const bool is_about_a_rank = code == ErrorCode::timeout || code == ErrorCode::peer_lost;
  if (goes_on && is_about_a_rank) return "shutdown() and init() give a world of those who are left";
  switch (code) {
    case ErrorCode::mismatch:
      return "make all ranks call the same operations with the same sizes in the same order";
    case ErrorCode::timeout: return "see what that rank is doing, or raise LOCKSTEP_TIMEOUT";
    case ErrorCode::peer_lost:
      return "look at what that rank printed last, and start again from the last checkpoint";
    default: return "start again from the last checkpoint";
  }
}

/// Long messages within the region: through arenas, where all ranks have one.
Lending lending_of(const std::shared_ptr<HostRegion>& region, const std::shared_ptr<Arena>& arena) {
  return {.least_bytes = ring_bytes,
          .place_of = [arena](std::span<const std::byte> bytes) -> std::optional<std::uint64_t> {
            const auto reach = arena->reach(bytes);
            if (!reach) return std::nullopt;
            if (reach->has_edges()) reach->copy_edges(bytes.data(), reach->place, bytes.size());
            return reach->offset;
          },
          .memory_of = [region](int rank, std::uint64_t place,
                                std::uint64_t bytes) -> std::optional<std::span<const std::byte>> {
            const std::uint64_t all = region->arena_bytes();
            if (place > all || bytes > all - place) return std::nullopt;
            return std::span<const std::byte>(region->arena(rank) + place, bytes);
          },
          .require_sound =
              [region] {
                if (const auto cause = region->first_cause().get())
                  throw Error(cause->code, cause->text, cause->peer());
              }};
}

std::optional<Arrivals> arrivals_of(const NativeOptions& options) {
  const Members& members = options.members;
  if (!members.are_on_one_host() && members.local_size() == 1) return std::nullopt;
  return Arrivals(options.region, members.self().local, members.local_size(), options.page->doorbell());
}

PlanCache plans_of(const NativeOptions& options) {
  const bool is_one_host = options.members.are_on_one_host();
  return {{.host_of = is_one_host ? std::vector<int>() : options.members.hosts(),
           .slot_bytes = slot_bytes,
           .ranks_per_node = options.ranks_per_node,
           .has_engine = options.exchange != nullptr},
          options.tuning,
          staging_bytes};
}

GroupParts parts_of(const NativeOptions& options, Transport& transport, const std::shared_ptr<Arena>& arena) {
  const Members& members = options.members;
  const auto channel = [&transport](int peer) -> Channel& {
    return transport.channel(peer, Purpose::point_to_point);
  };
  PlanCache plans = plans_of(options);
  const std::size_t staging = plans.staging_bytes();
  return {.members = members,
          .region = options.region,
          .is_one_host = members.are_on_one_host(),
          .here = members.here(),
          .arrivals = arrivals_of(options),
          .plans = std::move(plans),
          .staging_ring = StagingRing(staging),
          .crossing = kernel::CrossingCopies(),
          .links = Links(transport),
          .exchange = options.exchange,
          .mailbox = Mailbox(members.rank(), members.size(), channel, options.mailbox_bytes,
                             members.are_on_one_host() ? lending_of(options.region, arena) : Lending()),
          .record = CallRecord(options.record, options.name, members),
          .progress = *options.progress};
}

}  // namespace

std::shared_ptr<NativeBackend> NativeBackend::make(NativeOptions options) {
  std::shared_ptr<NativeBackend> backend(new NativeBackend(std::move(options)));
  backend->progress_->attach(*backend);
  return backend;
}

NativeBackend::NativeBackend(NativeOptions options)
    : name_(options.name),
      goes_on_(options.goes_on),
      progress_(options.progress),
      transport_(std::move(options.transport)),
      shares_arena_(options.arena != nullptr),
      arena_(shares_arena_ ? options.arena
                           : std::make_shared<Arena>(options.region, options.members.self().local)),
      parts_(parts_of(options, *transport_, arena_)),
      quick_(parts_, numbers_),
      blame_({.group = options.name,
              .page = options.page,
              .timeout = options.timeout,
              .warn_after = options.warn_after,
              .is_whole_job = options.is_whole_job,
              .of_world = options.blame_of_world},
             parts_, numbers_, *transport_) {
  watch_for_forks();
}

NativeBackend::~NativeBackend() {
  if (!has_left_) leave();
  {
    const auto lock = progress_->lock();
    blame_.note_end();
    *shared_blame_ = nullptr;
  }
  progress_->detach(*this);
  if (is_forked_child()) return;
  parts_.region->progress(parts_.members.self().local).has_let_go.store(1, std::memory_order_release);
}

void NativeBackend::leave() {
  if (is_forked_child()) return;
  const auto lock = progress_->lock();
  has_left_ = true;
  for (const trace::Sent& sent : transport_->sent()) parts_.record.note_sent(sent);
  transport_->say_goodbye();
}

std::unique_ptr<NativeTask> NativeBackend::take_task() {
  if (idle_tasks_.empty()) return std::make_unique<NativeTask>(parts_);
  auto task = std::move(idle_tasks_.back());
  idle_tasks_.pop_back();
  return task;
}

void NativeBackend::recycle(std::unique_ptr<NativeTask> task) {
  const auto lock = progress_->lock();
  std::erase(active_, task.get());
  if (failure_ && parts_.exchange && parts_.exchange->is_under_way()) {
    base::keep_for_ever(std::move(task));  // given up: the engine may still use its memory
    return;
  }
  parts_.record.note_blocked(task->signature(), task->element_bytes(), task->blocked_ns);
  idle_tasks_.push_back(std::move(task));
}

std::unique_ptr<PendingWork> NativeBackend::submit(const Request& request) {
  if (is_forked_child()) throw_forked(std::string(to_string(request.signature.operation)));
  const auto lock = progress_->lock();
  const bool is_quick = may_be_quick();
  if (is_message(request.signature.operation)) {
    notice_failure_elsewhere();
    if (is_quick && pass_small_message(request)) return nullptr;
  } else if (is_quick) {
    switch (quick_.collective(request)) {
      case QuickPath::Collective::done: return nullptr;
      case QuickPath::Collective::begun: return finish_small(request);
      case QuickPath::Collective::untouched: break;
    }
  }
  Signature signature = request.signature;
  BufferOffsets offsets;
  std::optional<Reach> input, output;
  if (parts_.arrivals && !is_message(signature.operation)) {
    input = arena_->reach(request.input, least_registered_bytes);
    const bool is_in_place =
        request.input.data() == request.output.data() && request.input.size() == request.output.size();
    output = is_in_place ? input : arena_->reach(request.output, least_registered_bytes);
    if (input) {
      signature.flags |= Signature::input_in_arena;
      offsets.input = input->offset;
    }
    if (output) {
      signature.flags |= Signature::output_in_arena;
      offsets.output = output->offset;
    }
  }
  std::uint64_t& counter = numbers_.next_for(request);
  if (failure_) throw make_error(signature, counter);
  const std::uint64_t called_ns = trace::record_now_ns();
  const bool is_short = is_quick && std::max(request.input.size(), request.output.size()) <= short_bytes;
  auto task = take_task();
  task->begin(request, signature, offsets, counter++);
  if (input && input->has_edges()) task->take_input_at(*input);
  if (output && output->has_edges()) task->take_output_at(*output);
  if (!parts_.is_one_host && !task->is_message()) blame_.note_call(task->number, signature);
  active_.push_back(task.get());
  advance();
  if (is_short) look_shortly_at(*task);
  return pending(std::move(task), called_ns);
}

// Where ranks share cores, the rank that is awaited may need the core on which this one would look.
bool NativeBackend::may_be_quick() const {
  return parts_.is_one_host && active_.empty() && !failure_ && progress_->policy().spins > 0;
}

bool NativeBackend::pass_small_message(const Request& request) {
  if (failure_) return false;
  try {
    return quick_.message(request);
  } catch (const Error& error) {
    fail(blame_.cause_of(error));
    return false;
  }
}

std::unique_ptr<PendingWork> NativeBackend::finish_small(const Request& request) {
  auto task = take_task();
  quick_.hand_over(request, *task);
  active_.push_back(task.get());
  advance();
  const std::uint64_t called_ns = task->begin_ns;
  return pending(std::move(task), called_ns);
}

void NativeBackend::look_shortly_at(const NativeTask& task) {
  for (int look = 0; look < short_looks && !task.is_over();) look = advance() ? 0 : look + 1;
}

std::unique_ptr<PendingWork> NativeBackend::pending(std::unique_ptr<NativeTask> task,
                                                    std::uint64_t called_ns) {
  task->blocked_ns = trace::record_now_ns() - called_ns;
  if (task->state == NativeTask::State::complete) {
    parts_.record.note_blocked(task->signature(), task->element_bytes(), task->blocked_ns);
    idle_tasks_.push_back(std::move(task));
    return nullptr;
  }
  if (!task->is_over()) task->open_call = parts_.record.open_calls().open(task->describe());
  if (!active_.empty()) progress_->wake_thread();
  return std::make_unique<NativeWork>(shared_from_this(), std::move(task));
}

void NativeBackend::poll() { progress_->poll(); }

std::uint64_t NativeBackend::own_work_ns() const { return progress_->own_work_ns().load(); }

ArenaBlock NativeBackend::allocate(std::size_t bytes) {
  if (is_forked_child()) throw_forked("allocate");  // the parent's memory, too
  return arena_->allocate(bytes);
}

RegisteredMemory NativeBackend::register_memory(std::span<std::byte> bytes) {
  if (is_forked_child()) throw_forked("register_memory");
  return arena_->register_memory(bytes);
}

bool NativeBackend::advance() {
  bool moved = false;
  std::uint64_t own_work_ns = 0;
  try {
    moved = parts_.links.advance();
    if (parts_.links.stopped_at()) throw blame_.unexpected_on_link();
    moved = parts_.mailbox.advance() || moved;
    if (parts_.mailbox.misfit()) throw blame_.misfit_in_mailbox();
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
    fail(blame_.cause_of(error));
    moved = true;
  }
  if (own_work_ns > 0) progress_->own_work_ns() += own_work_ns;
  if (active_.empty() && !failure_) blame_.note_idle();
  return moved;
}

void NativeBackend::finish(NativeTask& task) {
  if (!task.is_message() && !failure_) {
    const std::uint64_t through = numbers_.complete(task.number);
    if (parts_.arrivals) parts_.arrivals->complete_through(through);
  }
  const trace::CompletedCollective event = task.make_event();
  parts_.record.note(event, task.plan.get(), CallRecord::sizes_of(task.signature(), task.element_bytes()), 0);
  trace::OpenCalls& open_calls = parts_.record.open_calls();
  if (event.failed != 0) {
    if (task.open_call == trace::OpenCalls::nowhere) task.open_call = open_calls.open(task.describe());
    open_calls.fail(task.open_call, event.end_ns);
  } else {
    open_calls.close(task.open_call);
  }
}

void NativeBackend::look() {
  // What a peer sent before it left may have come since the last steps were taken; nobody is blamed before
  // that.
  if (advance() || failure_ || active_.empty()) return;
  if (auto cause = blame_.look(active_)) fail(std::move(*cause));
}

std::optional<FirstCause::Cause> NativeBackend::failure(bool needs_all) {
  if (is_forked_child()) return std::nullopt;
  const auto lock = progress_->lock();
  if (failure_) return failure_;
  advance();
  notice_failure_elsewhere();
  if (failure_) return failure_;
  if (auto cause = blame_.look_at_peers(needs_all)) fail(std::move(*cause));
  return failure_;
}

// A collective waits for the others, and looks for this then; a send may have nothing to wait for.
void NativeBackend::notice_failure_elsewhere() {
  const FirstCause& elsewhere = parts_.region->first_cause();
  if (failure_ || !elsewhere.is_set()) return;
  if (auto cause = elsewhere.get()) fail(std::move(*cause));
}

void NativeBackend::fail(const Error& error) {
  if (is_forked_child()) return;
  const auto lock = progress_->lock();
  fail(blame_.cause_of(error));
}

void NativeBackend::fail(FirstCause::Cause cause) {
  if (failure_) return;
  parts_.region->first_cause().set(cause);
  if (auto earlier = parts_.region->first_cause().get()) cause = std::move(*earlier);
  failure_ = cause;
  quarantine();
  transport_->tell_failure(cause);
  if (parts_.exchange) parts_.exchange->give_up();
  blame_.note_end();
  end_calls();
}

void NativeBackend::close(const std::string& reason) {
  if (is_forked_child()) return;
  const auto lock = progress_->lock();
  if (failure_) return;
  failure_ = {.code = ErrorCode::aborted, .text = reason};
  quarantine();
  if (parts_.exchange && parts_.exchange->is_under_way()) parts_.exchange->give_up();
  end_calls();
}

// Others may still be in this rank's calls that are under way, and in no others, until they have let go of the group. An engine
// is not known to have let go.
void NativeBackend::quarantine() {
  if (!shares_arena_) return arena_->quarantine();
  for (const NativeTask* task : active_) {
    arena_->quarantine(task->input(), others_have_let_go());
    arena_->quarantine(task->output(), others_have_let_go());
  }
}

void NativeBackend::keep_from_reuse(std::span<const std::byte> bytes) {
  const auto lock = progress_->lock();
  if (shares_arena_) arena_->quarantine(bytes, others_have_let_go());
}

/// Null: never.
std::function<bool()> NativeBackend::others_have_let_go() const {
  if (parts_.exchange) return nullptr;
  return [region = parts_.region] { return region->all_have_let_go(); };
}

void NativeBackend::end_calls() {
  for (NativeTask* task : active_) {
    task->set_failed();
    finish(*task);
  }
  active_.clear();
  parts_.mailbox.clear();
}

Error NativeBackend::make_error(const Signature& signature, std::uint64_t number) const {
  const std::string text = to_string(signature, number) + " in group \"" + name_ + "\": " + failure_->text +
                           "; the group is closed: " + remedy(failure_->code, goes_on_);
  return Error(failure_->code, text, failure_->peer());
}

Error NativeBackend::error_of(const NativeTask& task) const {
  const auto lock = progress_->lock();
  return make_error(task.signature(), task.number);
}

void NativeBackend::abandon(const NativeTask& task) noexcept {
  const auto lock = progress_->lock();
  if (task.is_over()) return;
  fail(blame_.gave_up(" " + std::string(to_string(task.signature().operation)) + " #" +
                      std::to_string(task.number) + ": an exception there ended it early"));
}

void NativeBackend::abort(const std::string& reason) {
  if (is_forked_child()) return;
  const auto lock = progress_->lock();
  fail(blame_.gave_up(": " + reason));
}

void NativeBackend::add_wait_descriptors(std::vector<pollfd>& descriptors) {
  const auto mine = transport_->wait_descriptors();
  descriptors.insert(descriptors.end(), mine.begin(), mine.end());
}

}  // namespace lockstep
