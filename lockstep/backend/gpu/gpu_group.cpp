#include "lockstep/backend/gpu/gpu_group.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/backend/forked.h"
#include "lockstep/base/log.h"
#include "lockstep/base/start_thread.h"
#include "lockstep/base/wait_on.h"
#include "lockstep/base/words.h"
#include "lockstep/trace/clock.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// Between two looks at what is under way. A GPU tells nobody that it is through.
constexpr auto between_looks = 1ms;
// Of a rank that waits on the host: it looks so often at first, and then naps so long.
constexpr int first_looks = 200;
constexpr std::chrono::microseconds nap = 20us;
// A call that waits longer tells the others where this rank is, so that one of them can say who is missing.
constexpr std::chrono::nanoseconds longest_untold = 1s;
// Ranks end one call so far from each other, if none of them hangs.
constexpr auto ending_takes = 5ms;
// How long a group that ends waits for the others to end it, too.
constexpr auto end_takes = 10s;
// When an engine fails because a rank has died, its launcher says so within this time.
constexpr auto word_takes = 500ms;

/// What requests that are one call are together.
Signature together(std::span<const Request> requests) {
  Signature all = requests.front().signature;
  if (is_message(all.operation)) return all;
  for (const Request& other : requests.subspan(1)) all.elements += other.signature.elements;
  return all;
}

}  // namespace

/// One call under way. Under its group's mutex, but for what never changes.
class GpuGroup::Call {
 public:
  Call(std::span<const Request> requests, std::uint64_t number)
      : signature(together(requests)),
        element_bytes(requests.front().element_bytes),
        peer(is_message(signature.operation) ? requests.front().peer : 0),
        stream(static_cast<cuda::Stream>(requests.front().place.stream)),
        number(number) {}

  trace::OpenCall describe(std::uint32_t group) const {
    return {.sequence = number, .begin_ns = begin_ns, .signature = signature, .group = group, .peer = peer};
  }

  const Signature signature;
  const std::size_t element_bytes;
  const int peer;
  const cuda::Stream stream;  // the program's
  const std::uint64_t number;
  std::unique_ptr<GpuCall> placed;  // until it is over
  std::uint64_t begin_ns = 0;       // submitted
  std::uint64_t running_ns = 0;     // first seen to run: the program's kernels before it are through
  bool is_captured = false;         // by a graph of CUDA's: nothing runs now
  bool is_over = false, has_failed = false;
  bool is_told = false, is_warned = false;  // of who looks at it
  int open_call = trace::OpenCalls::nowhere;
};

class GpuGroup::Work final : public PendingWork {
 public:
  Work(std::shared_ptr<GpuGroup> group, std::shared_ptr<Call> call)
      : group_(std::move(group)), call_(std::move(call)) {}

  bool poll() override {
    group_->options_.progress->poll();
    return is_over();
  }
  /// The program's stream waits; the host does not.
  void wait() override {
    if (is_forked_child()) return;
    require_well();
    const Gpu::Current current(*group_->options_.gpu);
    const std::lock_guard lock(group_->mutex_);
    if (call_->placed) call_->placed->make_wait(call_->stream);
  }
  bool follow() override {
    wait();
    return true;
  }
  void synchronize() override {
    if (call_->is_captured) return wait();
    (void)wait_for(std::chrono::nanoseconds::max());
    require_well();
  }
  bool wait_for(std::chrono::nanoseconds duration) override {
    const Deadline deadline =
        duration == std::chrono::nanoseconds::max() ? Deadline::never() : Deadline::after(duration);
    for (int looks = 0; !poll(); ++looks) {
      if (deadline.expired()) return false;
      if (looks > first_looks) std::this_thread::sleep_for(nap);
    }
    return true;
  }
  void abandon() noexcept override {
    try {
      if (is_over()) return;
    } catch (const Error& error) {  // the GPU has failed
      log::debug(error.what());
    }
    const int rank = group_->options_.members.self().world;
    group_->fail(Error(ErrorCode::peer_lost,
                       fmt::format("rank {} gave up {} #{}: an exception there ended it early", rank,
                                   to_string(call_->signature.operation), call_->number),
                       rank),
                 Telling::all);
    // Another thread may be ending the group: the buffers are the program's again when it is through with that.
    std::unique_lock lock(group_->mutex_);
    base::wait_on(group_->changed_, lock, [this] { return call_->is_over; });
  }

 private:
  bool is_over() {
    if (call_->is_captured || is_forked_child()) return true;
    const std::lock_guard lock(group_->mutex_);
    if (!call_->is_over) group_->advance();
    return call_->is_over;
  }
  void require_well() const {
    const std::lock_guard lock(group_->mutex_);
    if (call_->has_failed) throw group_->make_error(*call_);
  }

  std::shared_ptr<GpuGroup> group_;
  std::shared_ptr<Call> call_;
};

std::shared_ptr<GpuGroup> GpuGroup::begin(Options options, std::unique_ptr<GpuEngine> engine) {
  std::shared_ptr<GpuGroup> group(new GpuGroup(std::move(options), std::move(engine)));
  group->watch_ = start_thread("lockstep-gpu", [raw = group.get()] { raw->watch(); });
  return group;
}

GpuGroup::GpuGroup(Options options, std::unique_ptr<GpuEngine> engine)
    : options_(std::move(options)),
      engine_(std::move(engine)),
      record_(options_.record, options_.record_name, options_.members) {
  watch_for_forks();
  const auto lock = options_.progress->lock();
  engine_number_ = options_.record.recorder->number_of(engine_->name());
}

std::optional<Error> GpuGroup::failure_elsewhere(bool needs_all) const {
  return options_.failure_elsewhere ? options_.failure_elsewhere(needs_all) : std::nullopt;
}

GpuGroup::~GpuGroup() {
  if (watch_.joinable()) await_the_last();
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  if (watch_.joinable()) watch_.join();
  try {
    const Gpu::Current current(*options_.gpu);
    engine_->end(Deadline::after(end_takes), [this] { return failure_elsewhere().has_value(); });
  } catch (const Error& error) {  // the store's rank is gone, or the GPU
    log::debug(error.what());
  }
}

/// What the program's streams wait for goes on without it. The watch sees to it that this ends.
void GpuGroup::await_the_last() {
  if (std::uncaught_exceptions() > 0) {
    const int rank = options_.members.self().world;
    std::unique_lock lock(mutex_);
    const bool is_idle = active_.empty();
    lock.unlock();
    if (!is_idle)
      fail(Error(ErrorCode::peer_lost,
                 fmt::format("rank {} gave up: an exception there ended the group early", rank), rank),
           Telling::all);
    return;
  }
  std::unique_lock lock(mutex_);
  base::wait_on(changed_, lock, [this] { return active_.empty() || failure_; });
}

void GpuGroup::require_live() const {
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(*failure_);
}

std::unique_ptr<PendingWork> GpuGroup::submit(std::span<const Request> requests) {
  const std::string what(to_string(requests.front().signature.operation));
  if (is_forked_child()) throw_forked(what);
  for (const Request& request : requests) {
    require_possible_on_gpu(request);
    engine_->require_possible(request);
  }
  if (requests.size() == 1 && is_message(requests.front().signature.operation) &&
      requests.front().peer == options_.members.rank()) {
    throw Error(
        ErrorCode::unsupported,
        what + ": on a GPU a rank gets messages of its own by sendrecv() only, which is both sides at once");
  }
  const std::lock_guard order(order_);
  const Gpu::Current current(*options_.gpu);
  for (const Request& request : requests) {
    if (!request.input.empty()) options_.gpu->require_own(request.input.data(), what + ": input");
    if (!request.output.empty()) options_.gpu->require_own(request.output.data(), what + ": output");
  }
  std::shared_ptr<Call> call;
  try {
    call = begin_call(requests);
  } catch (const Error& error) {
    const bool was_begun =
        error.code() != ErrorCode::invalid_argument && error.code() != ErrorCode::unsupported;
    if (!was_begun) throw;
    fail(error, Telling::all);
    const std::lock_guard lock(mutex_);
    throw failure_of(what);
  }
  return std::make_unique<Work>(shared_from_this(), std::move(call));
}

std::shared_ptr<GpuGroup::Call> GpuGroup::begin_call(std::span<const Request> requests) {
  require_live();
  if (const auto cause = failure_elsewhere()) throw Error(*cause);
  const bool is_of_messages = is_message(requests.front().signature.operation);
  std::uint64_t& counter = is_of_messages ? messages_ : next_number_;
  auto call = std::make_shared<Call>(requests, counter);
  call->begin_ns = trace::record_now_ns();
  call->is_captured = options_.gpu->is_captured(call->stream);
  if (call->is_captured && !engine_->can_be_captured()) {
    throw Error(ErrorCode::unsupported, to_string(call->signature) +
                                            ": ranks that share a GPU cannot have a graph capture their "
                                            "calls, nor can those of several hosts "
                                            "without NCCL; call between graphs");
  }
  if (!call->is_captured) open(*call);
  try {
    put(requests, *call);
  } catch (const Error&) {
    const auto lock = options_.progress->lock();
    record_.open_calls().fail(call->open_call, trace::record_now_ns());
    throw;
  }
  const std::lock_guard lock(mutex_);
  ++counter;
  if (call->is_captured) return call;
  active_.push_back(call);
  if (active_.size() == 1) changed_.notify_all();
  return call;
}

void GpuGroup::put(std::span<const Request> requests, Call& call) try {
  auto placed = engine_->put(requests, call.stream, call.is_captured);
  call.placed = std::move(placed.call);
  require_live();
  if (placed.state == GpuEngine::State::unsettled) {
    settle(call);
    call.placed->note_settled();
  }
} catch (const Error& error) {
  if (error.code() == ErrorCode::invalid_argument) throw;
  require_live();
  throw explained(error);
}

void GpuGroup::open(Call& call) {
  const auto lock = options_.progress->lock();
  call.open_call = record_.open_calls().open(call.describe(record_.group()));
}

/// The engine goes on with the call by itself, since ranks that it needs are not there yet.
void GpuGroup::settle(Call& call) {
  const Deadline deadline = Deadline::after(options_.timeout), telling = Deadline::after(tell_after());
  for (int looks = 0;; ++looks) {
    const GpuEngine::State state = engine_->look();
    require_live();
    if (state == GpuEngine::State::settled) return;
    if (looks < first_looks) continue;
    const bool is_long = telling.expired();
    if (const auto cause = failure_elsewhere(is_long)) throw Error(*cause);
    if (is_long && !std::exchange(call.is_told, true)) tell_waiting(call);
    if (deadline.expired()) throw timed_out(call);
    std::this_thread::sleep_for(between_looks);
  }
}

void GpuGroup::watch() {
  std::unique_lock lock(mutex_);
  while (!stops_) {
    if (active_.empty()) {
      wait_idle(lock);
      continue;
    }
    lock.unlock();
    try {
      look();
    } catch (const Error& error) {
      fail(error, Telling::all);
    }
    lock.lock();
    (void)changed_.wait_for(lock, between_looks, [this] { return stops_; });
  }
}

/// Until there is something to do. Meanwhile the engine is looked at if it wants to be, and the others are told, once, how far this rank is.
void GpuGroup::wait_idle(std::unique_lock<std::mutex>& lock) {
  const auto is_called = [this] { return stops_ || !active_.empty(); };
  const std::chrono::nanoseconds looks = engine_->looks_when_idle();
  const Deadline telling = Deadline::after(tell_after());
  while (!is_called()) {
    const bool is_untold = told_through_ != next_number_;
    if (failure_ || (looks == 0ns && !is_untold)) return base::wait_on(changed_, lock, is_called);
    if (changed_.wait_for(lock, looks > 0ns ? looks : tell_after(), is_called)) return;
    const bool tells = is_untold && telling.expired();
    if (tells) told_through_ = next_number_;
    lock.unlock();
    try {
      if (looks > 0ns) (void)engine_->look();
      if (tells) engine_->tell_through(told_through_);
    } catch (const Error& error) {
      fail(explained(error), Telling::all);
    }
    lock.lock();
  }
}

void GpuGroup::look() {
  std::shared_ptr<Call> first;
  {
    const std::lock_guard lock(mutex_);
    advance();
    if (active_.empty()) return;
    first = active_.front();
  }
  if (const auto cause = failure_elsewhere()) {
    // Who failed has ended these, maybe, a moment before this rank's GPU has: fail() looks again.
    std::this_thread::sleep_for(ending_takes);
    return fail(*cause, Telling::engine);
  }
  try {
    (void)engine_->look();
  } catch (const Error& error) {
    throw explained(error);
  }
  look_at_clock(*first);
}

/// Those that are through leave. REQUIRES: mutex_.
void GpuGroup::advance() {
  const Gpu::Current current(*options_.gpu);
  const Gpu::BesideCaptures beside(*options_.gpu);
  bool has_moved = false;
  while (!active_.empty() && active_.front()->placed->is_over()) {
    finish(*active_.front(), false);
    active_.pop_front();
    has_moved = true;
  }
  if (has_moved && active_.empty()) changed_.notify_all();
}

void GpuGroup::look_at_clock(Call& call) {
  const std::uint64_t now = trace::now_ns();
  if (call.running_ns == 0) {
    const Gpu::Current current(*options_.gpu);
    const Gpu::BesideCaptures beside(*options_.gpu);
    // Behind the program's own kernels, which may take as long as they like.
    const std::lock_guard lock(mutex_);
    if (call.placed == nullptr || call.placed->has_begun()) call.running_ns = now;
    return;
  }
  const std::chrono::nanoseconds waited(now - call.running_ns);
  if (waited >= tell_after()) {
    if (!std::exchange(call.is_told, true)) tell_waiting(call);
    // Not sooner: one that has done its part may leave, and the call ends all the same.
    if (const auto cause = failure_elsewhere(true)) return fail(*cause, Telling::engine);
  }
  if (waited >= options_.timeout) throw timed_out(call);
  if (waited >= options_.warn_after && !std::exchange(call.is_warned, true)) {
    log::warning(fmt::format("{} on GPU {} in group \"{}\" has waited for {}",
                             to_string(call.signature, call.number), options_.gpu->device(), options_.name,
                             base::exact_duration(options_.warn_after)));
  }
}

std::chrono::nanoseconds GpuGroup::tell_after() const {
  return std::min(options_.timeout / 4, longest_untold);
}

/// Messages are their two ranks' business.
void GpuGroup::tell_waiting(const Call& call) {
  if (!is_message(call.signature.operation)) engine_->tell_waiting(call.number, call.signature);
}

/// By what the other ranks have told.
Error GpuGroup::timed_out(const Call& call) {
  const std::string what = to_string(call.signature, call.number) + " on GPUs";
  const std::string within = base::exact_duration(options_.timeout);
  const Members& members = options_.members;
  if (is_message(call.signature.operation)) {
    const int peer = members[call.peer].world;
    return Error(ErrorCode::timeout,
                 fmt::format("rank {} did not do its part of {} within {}", peer, what, within), peer);
  }
  if (members.size() == 1) return Error(ErrorCode::timeout, what + " did not end within " + within);
  std::this_thread::sleep_for(2 * tell_after());  // one that came, or was through, just now has told by then
  std::vector<int> missing;
  try {
    missing = engine_->missing_in(call.number, call.signature);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::mismatch) return error;
    if (const auto cause = word_from_elsewhere())
      return *cause;  // who has told it may have ended, and the store with it
    return Error(ErrorCode::timeout, what + " did not end within " + within +
                                         ", and who is missing is not known (" + error.what() + ")");
  }
  if (missing.empty()) {
    return Error(ErrorCode::timeout, what + " did not end within " + within +
                                         ", though all ranks have called it: " + engine_->advice());
  }
  return Error(ErrorCode::timeout, base::name_ranks(missing) + " did not call " + what + " within " + within,
               missing.size() == 1 ? std::optional(missing.front()) : std::nullopt);
}

/// What others have failed of, which may be on its way yet.
std::optional<Error> GpuGroup::word_from_elsewhere() const {
  if (!options_.failure_elsewhere) return std::nullopt;
  for (const auto deadline = Deadline::after(word_takes); !deadline.expired();
       std::this_thread::sleep_for(between_looks)) {
    if (auto cause = failure_elsewhere()) return cause;
  }
  return std::nullopt;
}

/// One that fails because of another rank waits until it is known which.
Error GpuGroup::explained(const Error& of_engine) const {
  if (of_engine.code() != ErrorCode::system) return of_engine;
  return word_from_elsewhere().value_or(of_engine);
}

/// The engine is aborted before calls are over for the program, which takes their buffers back then.
void GpuGroup::fail(const Error& cause, Telling telling) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
  }
  // What CUDA says to one rank is news to the others.
  const bool is_own = telling == Telling::all && cause.code() == ErrorCode::system && !cause.peer() &&
                      options_.members.size() > 1;
  const int own = options_.members.self().world;
  Error first = is_own ? Error(cause.code(), fmt::format("rank {}: {}", own, cause.what()), own) : cause;
  if (telling == Telling::all && options_.tell_failure) {
    options_.tell_failure(first);
    if (const auto earlier = failure_elsewhere()) first = *earlier;
  }
  std::deque<std::shared_ptr<Call>> ended;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    try {
      advance();                    // what is through has not failed
    } catch (const Error& error) {  // the GPU has
      log::debug(error.what());
    }
    failure_ = first;
    ended.swap(active_);
  }
  if (telling != Telling::nobody) engine_->tell_failure(first);
  engine_->abort();
  const std::lock_guard lock(mutex_);
  const Call* dropped = nullptr;
  for (const auto& call : ended) {
    finish(*call, true);
    if (call.use_count() == 1) dropped = call.get();
  }
  // The program's stream goes on as if they were well, and nobody will ask.
  if (dropped != nullptr)
    log::error(std::string("calls that nobody has synchronized failed, the last: ") +
               make_error(*dropped).what());
  changed_.notify_all();
}

void GpuGroup::close(const std::string& reason) { fail(Error(ErrorCode::aborted, reason), Telling::nobody); }

/// REQUIRES: mutex_.
void GpuGroup::finish(Call& call, bool has_failed) {
  call.is_over = true;
  call.has_failed = has_failed;
  const std::uint64_t end_ns = trace::record_now_ns();
  const std::uint64_t on_gpu_ns = has_failed ? 0 : call.placed->ns_on_gpu();
  call.placed = nullptr;
  const auto lock = options_.progress->lock();
  // It ended some time before this look; how long it took on the GPU is exact.
  auto event = record_.event(call.signature, call.number, call.begin_ns,
                             std::max(call.begin_ns, end_ns - std::min(on_gpu_ns, end_ns)), end_ns);
  event.failed = has_failed ? 1 : 0;
  record_.note_by_engine(event, engine_number_, CallRecord::sizes_of(call.signature, call.element_bytes));
  if (has_failed) {
    record_.open_calls().fail(call.open_call, end_ns);
  } else {
    record_.open_calls().close(call.open_call);
  }
}

/// REQUIRES: mutex_.
Error GpuGroup::make_error(const Call& call) const {
  return failure_of(to_string(call.signature, call.number), "; the group is closed");
}

/// REQUIRES: mutex_.
Error GpuGroup::failure_of(const std::string& what, const char* end) const {
  return Error(failure_->code(),
               fmt::format("{} on GPU {} in group \"{}\": {}{}", what, options_.gpu->device(), options_.name,
                           failure_->what(), end),
               failure_->peer());
}

}  // namespace lockstep
