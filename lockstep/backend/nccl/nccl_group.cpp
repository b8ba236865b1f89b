#include "lockstep/backend/nccl/nccl_group.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/backend/forked.h"
#include "lockstep/backend/nccl/nccl_meeting.h"
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
// How long a group that ends waits for the others to end it, too.
constexpr auto end_takes = 10s;
// When NCCL fails because a rank has died, its launcher says so within this time.
constexpr auto word_takes = 500ms;

}  // namespace

/// One call under way. Under its group's mutex, but for what never changes.
class NcclGroup::Call {
 public:
  Call(std::shared_ptr<GpuEvents> events, const Request& request, std::uint64_t number)
      : signature(request.signature),
        element_bytes(request.element_bytes),
        peer(is_message(request.signature.operation) ? request.peer : 0),
        stream(static_cast<cuda::Stream>(request.place.stream)),
        number(number),
        begin(events->take()),
        end(events->take()),
        events_(std::move(events)) {}
  ~Call() {
    events_->put_back(begin);
    events_->put_back(end);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  trace::OpenCall describe(std::uint32_t group) const {
    return {.sequence = number, .begin_ns = begin_ns, .signature = signature, .group = group, .peer = peer};
  }

  const Signature signature;
  const std::size_t element_bytes;
  const int peer;
  const cuda::Stream stream;  // the program's
  const std::uint64_t number;
  const cuda::Event begin, end;  // on the group's stream
  std::uint64_t begin_ns = 0;    // submitted
  std::uint64_t running_ns = 0;  // first seen to run: the program's kernels before it are through
  bool is_captured = false;      // by a graph of CUDA's: nothing runs now
  bool is_over = false, has_failed = false;
  bool is_told = false, is_warned = false;  // of who looks at it
  int open_call = trace::OpenCalls::nowhere;

 private:
  std::shared_ptr<GpuEvents> events_;
};

class NcclGroup::Work final : public PendingWork {
 public:
  Work(std::shared_ptr<NcclGroup> group, std::shared_ptr<Call> call)
      : group_(std::move(group)), call_(std::move(call)) {}

  bool poll() override {
    group_->options_.progress->poll();
    return is_over();
  }
  /// The program's stream waits; the host does not.
  void wait() override {
    if (is_forked_child()) return;
    require_well();
    const Gpu& gpu = *group_->options_.gpu;
    const Gpu::Current current(gpu);
    gpu.driver().check(gpu.driver().make_wait(call_->stream, call_->end, 0), "making a stream wait");
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
                 true);
  }

 private:
  bool is_over() {
    if (call_->is_captured || is_forked_child()) return true;
    const std::lock_guard lock(group_->mutex_);
    if (!call_->is_over) (void)group_->advance();
    return call_->is_over;
  }
  void require_well() const {
    const std::lock_guard lock(group_->mutex_);
    if (call_->has_failed) throw group_->make_error(*call_);
  }

  std::shared_ptr<NcclGroup> group_;
  std::shared_ptr<Call> call_;
};

std::shared_ptr<NcclGroup> NcclGroup::connect(Options options) {
  std::shared_ptr<NcclGroup> group(new NcclGroup(std::move(options)));
  group->meet();
  group->watch_ = start_thread("lockstep-nccl", [raw = group.get()] { raw->watch(); });
  return group;
}

NcclGroup::NcclGroup(Options options)
    : options_(std::move(options)),
      nccl_(nccl::Library::get()),
      record_(options_.record, options_.record_name, options_.members),
      events_(std::make_shared<GpuEvents>(options_.gpu)) {
  watch_for_forks();
  if (options_.store) positions_.emplace(*options_.store, options_.members);
  const auto lock = options_.progress->lock();
  engine_number_ = options_.record.recorder->number_of("nccl");
}

std::optional<Error> NcclGroup::failure_elsewhere(bool needs_all) const {
  return options_.failure_elsewhere ? options_.failure_elsewhere(needs_all) : std::nullopt;
}

/// How NCCL's communicator is.
nccl::Result NcclGroup::ask_nccl() const {
  const std::lock_guard lock(comm_mutex_);
  if (is_aborted_) return nccl::success;  // the group has failed, which says more
  nccl::Result state = nccl::success;
  const nccl::Result result = nccl_.async_error(comm_, &state);
  return result == nccl::success ? state : result;
}

void NcclGroup::meet() {
  const Deadline deadline = Deadline::after(options_.connect_timeout);
  nccl::UniqueId id{};
  if (options_.store) {
    id = nccl::meet(*options_.store, options_.members, options_.gpu->uuid(), nccl_, deadline);
  } else if (const auto result = nccl_.get_unique_id(&id); result != nccl::success) {
    throw nccl_failed(result);
  }
  const cuda::Driver& driver = options_.gpu->driver();
  const Gpu::Current current(*options_.gpu);
  int least = 0, greatest = 0;
  driver.check(driver.priority_range(&least, &greatest), "asking for the priorities of streams");
  driver.check(driver.make_stream(&stream_, cuda::stream_non_blocking, greatest), "making a stream");
  driver.check(driver.allocate(&scratch_, 256), "allocating memory on the GPU");
  begin_nccl(id, deadline);
  calls_.emplace(nccl_, comm_, options_.members.rank(), options_.members.size(), stream_,
                 reinterpret_cast<void*>(static_cast<std::uintptr_t>(scratch_)));
}

void NcclGroup::begin_nccl(const nccl::UniqueId& id, Deadline deadline) {
  nccl::Config config;
  config.blocking = 0;
  nccl::Result result =
      nccl_.init_rank(&comm_, options_.members.size(), id, options_.members.rank(), &config);
  for (; result == nccl::in_progress; result = ask_nccl()) {
    if (deadline.expired()) {
      throw Error(
          ErrorCode::timeout,
          fmt::format(
              "NCCL did not connect the ranks of group \"{}\" within {}: NCCL_DEBUG=INFO shows what it "
              "tries; a network that it must not take is left out by NCCL_SOCKET_IFNAME",
              options_.name, base::exact_duration(options_.connect_timeout)));
    }
    if (const auto cause = failure_elsewhere()) throw Error(*cause);
    std::this_thread::sleep_for(between_looks);
  }
  if (result != nccl::success) throw nccl_failed(result);
}

NcclGroup::~NcclGroup() {
  if (watch_.joinable()) await_the_last();
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  if (watch_.joinable()) watch_.join();
  try {
    end();
  } catch (const Error& error) {  // the store's rank is gone, or the GPU
    log::debug(error.what());
  }
}

/// What the program's streams wait for goes on without it. The watch sees to it that this ends.
void NcclGroup::await_the_last() {
  if (std::uncaught_exceptions() > 0) {
    const int rank = options_.members.self().world;
    std::unique_lock lock(mutex_);
    const bool is_idle = active_.empty();
    lock.unlock();
    if (!is_idle)
      fail(Error(ErrorCode::peer_lost,
                 fmt::format("rank {} gave up: an exception there ended the group early", rank), rank),
           true);
    return;
  }
  std::unique_lock lock(mutex_);
  base::wait_on(changed_, lock, [this] { return active_.empty() || failure_; });
}

void NcclGroup::end() {
  const Gpu::Current current(*options_.gpu);
  const cuda::Driver& driver = options_.gpu->driver();
  if (comm_ != nullptr && !is_aborted_) {
    // Ends with the others', unless they are gone.
    nccl::Result result = calls_ ? nccl_.finalize(comm_) : nccl::remote_error;
    for (const auto deadline = Deadline::after(end_takes);
         result == nccl::in_progress && !deadline.expired();) {
      std::this_thread::sleep_for(between_looks);
      if (failure_elsewhere()) break;
      result = ask_nccl();
    }
    (void)(result == nccl::success ? nccl_.destroy(comm_) : nccl_.abort(comm_));
  }
  if (scratch_ != 0) (void)driver.free(scratch_);
  if (stream_ != nullptr) (void)driver.destroy_stream(stream_);
  if (positions_) positions_->erase();
}

void NcclGroup::require_live() const {
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(*failure_);
}

std::unique_ptr<PendingWork> NcclGroup::submit(std::span<const Request> requests) {
  const std::string what(to_string(requests.front().signature.operation));
  if (is_forked_child()) throw_forked(what);
  for (const Request& request : requests) nccl::require_possible(request);
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
    call = begin(requests);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::invalid_argument) throw;  // nothing was begun
    fail(error, true);
    const std::lock_guard lock(mutex_);
    throw failure_of(what);
  }
  return std::make_unique<Work>(shared_from_this(), std::move(call));
}

std::shared_ptr<NcclGroup::Call> NcclGroup::begin(std::span<const Request> requests) {
  require_live();
  if (const auto cause = failure_elsewhere()) throw Error(*cause);
  const bool is_of_messages = is_message(requests.front().signature.operation);
  std::uint64_t& counter = is_of_messages ? messages_ : next_number_;
  auto call = std::make_shared<Call>(events_, requests.front(), counter);
  call->begin_ns = trace::record_now_ns();
  tie_to_program(*call);
  {
    const std::lock_guard lock(mutex_);
    ++counter;
  }
  if (!call->is_captured) open(*call);
  try {
    put(requests, *call);
    options_.gpu->driver().check(options_.gpu->driver().record_event(call->end, stream_), "marking a stream");
  } catch (const Error&) {
    const auto lock = options_.progress->lock();
    record_.open_calls().fail(call->open_call, trace::record_now_ns());
    throw;
  }
  if (call->is_captured) return call;
  const std::lock_guard lock(mutex_);
  active_.push_back(call);
  if (active_.size() == 1) changed_.notify_all();
  return call;
}

/// What the program has put on its stream comes before.
void NcclGroup::tie_to_program(Call& call) {
  const cuda::Driver& driver = options_.gpu->driver();
  int capture = cuda::capture_none;
  const cuda::Result asked = driver.capture_status(call.stream, &capture);
  call.is_captured = capture != cuda::capture_none;
  const cuda::Result marked = asked == cuda::success ? driver.record_event(call.end, call.stream) : asked;
  if (marked == cuda::invalid_handle || marked == cuda::invalid_value) {
    throw_invalid_argument(fmt::format("{} on GPU {}: the call's stream is none of this GPU's",
                                       to_string(call.signature), options_.gpu->device()));
  }
  driver.check(marked, "marking the program's stream");
  driver.check(driver.make_wait(stream_, call.end, 0), "making a stream wait");
  if (!call.is_captured) driver.check(driver.record_event(call.begin, stream_), "marking a stream");
}

void NcclGroup::put(std::span<const Request> requests, Call& call) {
  nccl::Result result = nccl::success;
  {
    const std::lock_guard lock(comm_mutex_);
    if (!is_aborted_) result = calls_->put(requests);
  }
  require_live();
  if (result == nccl::in_progress) {
    settle(call);
  } else if (result != nccl::success) {
    throw nccl_failed(result);
  }
}

void NcclGroup::open(Call& call) {
  const auto lock = options_.progress->lock();
  call.open_call = record_.open_calls().open(call.describe(record_.group()));
}

/// NCCL goes on with the call by itself, since ranks that it needs are not there yet.
void NcclGroup::settle(Call& call) {
  const Deadline deadline = Deadline::after(options_.timeout), telling = Deadline::after(tell_after());
  for (int looks = 0;; ++looks) {
    const nccl::Result state = ask_nccl();
    require_live();
    if (state == nccl::success) return;
    if (state != nccl::in_progress) throw nccl_failed(state);
    if (looks < first_looks) continue;
    const bool is_long = telling.expired();
    if (const auto cause = failure_elsewhere(is_long)) throw Error(*cause);
    if (is_long && !std::exchange(call.is_told, true)) tell_waiting(call);
    if (deadline.expired()) throw timed_out(call);
    std::this_thread::sleep_for(between_looks);
  }
}

void NcclGroup::watch() {
  std::unique_lock lock(mutex_);
  while (!stops_) {
    if (active_.empty()) {
      const auto is_called = [this] { return stops_ || !active_.empty(); };
      if (told_through_ == next_number_ || failure_) {
        base::wait_on(changed_, lock, is_called);
      } else if (!changed_.wait_for(lock, tell_after(), is_called)) {
        told_through_ = next_number_;
        lock.unlock();
        if (positions_) positions_->tell_through(told_through_);
        lock.lock();
      }
      continue;
    }
    lock.unlock();
    try {
      look();
    } catch (const Error& error) {
      fail(error, true);
    }
    lock.lock();
    (void)changed_.wait_for(lock, between_looks, [this] { return stops_; });
  }
}

void NcclGroup::look() {
  std::shared_ptr<Call> first;
  {
    const std::lock_guard lock(mutex_);
    (void)advance();
    if (active_.empty()) return;
    first = active_.front();
  }
  if (const auto cause = failure_elsewhere()) return fail(*cause, false);
  const nccl::Result state = ask_nccl();
  if (state != nccl::success && state != nccl::in_progress) throw nccl_failed(state);
  look_at_clock(*first);
}

/// Those that are through leave. REQUIRES: mutex_.
bool NcclGroup::advance() {
  const cuda::Driver& driver = options_.gpu->driver();
  const Gpu::Current current(*options_.gpu);
  const Gpu::BesideCaptures beside(*options_.gpu);
  bool has_moved = false;
  while (!active_.empty()) {
    const cuda::Result result = driver.query_event(active_.front()->end);
    if (result == cuda::not_ready) break;
    driver.check(result, "waiting for a call on the GPU");
    finish(*active_.front(), false);
    active_.pop_front();
    has_moved = true;
  }
  if (has_moved && active_.empty()) changed_.notify_all();
  return has_moved;
}

void NcclGroup::look_at_clock(Call& call) {
  const std::uint64_t now = trace::now_ns();
  if (call.running_ns == 0) {
    const Gpu::Current current(*options_.gpu);
    const Gpu::BesideCaptures beside(*options_.gpu);
    // Behind the program's own kernels, which may take as long as they like.
    if (options_.gpu->driver().query_event(call.begin) == cuda::success) call.running_ns = now;
    return;
  }
  const std::chrono::nanoseconds waited(now - call.running_ns);
  if (waited >= tell_after()) {
    if (!std::exchange(call.is_told, true)) tell_waiting(call);
    // Not sooner: one that has done its part may leave, and the call ends all the same.
    if (const auto cause = failure_elsewhere(true)) return fail(*cause, false);
  }
  if (waited >= options_.timeout) throw timed_out(call);
  if (waited >= options_.warn_after && !std::exchange(call.is_warned, true)) {
    log::warning(fmt::format("{} on GPU {} in group \"{}\" has waited for {}",
                             to_string(call.signature, call.number), options_.gpu->device(), options_.name,
                             base::exact_duration(options_.warn_after)));
  }
}

std::chrono::nanoseconds NcclGroup::tell_after() const {
  return std::min(options_.timeout / 4, longest_untold);
}

/// Messages are their two ranks' business.
void NcclGroup::tell_waiting(const Call& call) {
  if (positions_ && !is_message(call.signature.operation))
    positions_->tell_waiting(call.number, call.signature);
}

/// By what the other ranks have told.
Error NcclGroup::timed_out(const Call& call) {
  const std::string what = to_string(call.signature, call.number) + " on GPUs";
  const std::string within = base::exact_duration(options_.timeout);
  const Members& members = options_.members;
  if (is_message(call.signature.operation)) {
    const int peer = members[call.peer].world;
    return Error(ErrorCode::timeout,
                 fmt::format("rank {} did not do its part of {} within {}", peer, what, within), peer);
  }
  if (!positions_) return Error(ErrorCode::timeout, what + " did not end within " + within);
  std::this_thread::sleep_for(2 * tell_after());  // one that came, or was through, just now has told by then
  std::vector<int> missing;
  try {
    missing = positions_->missing_in(call.number, call.signature);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::mismatch) return error;
    return Error(ErrorCode::timeout, what + " did not end within " + within +
                                         ", and who is missing is not known (" + error.what() + ")");
  }
  if (missing.empty()) {
    return Error(ErrorCode::timeout,
                 what + " did not end within " + within +
                     ", though all ranks have called it: NCCL_DEBUG=INFO shows what NCCL does");
  }
  return Error(ErrorCode::timeout, base::name_ranks(missing) + " did not call " + what + " within " + within,
               missing.size() == 1 ? std::optional(missing.front()) : std::nullopt);
}

/// One that fails because of another rank waits until it is known which.
Error NcclGroup::nccl_failed(nccl::Result result) const {
  if (options_.failure_elsewhere) {
    for (const auto deadline = Deadline::after(word_takes); !deadline.expired();
         std::this_thread::sleep_for(between_looks)) {
      if (const auto cause = failure_elsewhere()) return *cause;
    }
  }
  const std::lock_guard lock(comm_mutex_);
  return Error(ErrorCode::system, fmt::format("NCCL {} on rank {} says: {}; NCCL_DEBUG=INFO shows more",
                                              nccl_.version_text(), options_.members.self().world,
                                              nccl_.text_of(result, is_aborted_ ? nullptr : comm_)));
}

/// The communicator is aborted before calls are over for the program, which takes their buffers back then.
void NcclGroup::fail(const Error& cause, bool is_told) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
  }
  Error first = cause;
  if (is_told && options_.tell_failure) {
    options_.tell_failure(cause);
    if (const auto earlier = failure_elsewhere()) first = *earlier;
  }
  std::deque<std::shared_ptr<Call>> ended;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = first;
    ended.swap(active_);
  }
  abort_nccl();
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

void NcclGroup::abort_nccl() noexcept {
  std::optional<Gpu::Current> current;
  try {
    current.emplace(*options_.gpu);
  } catch (const Error& error) {  // NCCL finds its own
    log::debug(error.what());
  }
  const std::lock_guard lock(comm_mutex_);
  if (!std::exchange(is_aborted_, true)) (void)nccl_.abort(comm_);
}

void NcclGroup::close(const std::string& reason) { fail(Error(ErrorCode::aborted, reason), false); }

/// REQUIRES: mutex_.
void NcclGroup::finish(Call& call, bool has_failed) {
  call.is_over = true;
  call.has_failed = has_failed;
  const std::uint64_t end_ns = trace::record_now_ns();
  std::uint64_t on_gpu_ns = 0;
  if (float milliseconds = 0;
      !has_failed && options_.gpu->driver().elapsed_ms(&milliseconds, call.begin, call.end) == cuda::success)
    on_gpu_ns = static_cast<std::uint64_t>(std::max(milliseconds, 0.0F) * 1e6F);
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
Error NcclGroup::make_error(const Call& call) const {
  return failure_of(to_string(call.signature, call.number), "; the group is closed");
}

/// REQUIRES: mutex_.
Error NcclGroup::failure_of(const std::string& what, const char* end) const {
  return Error(failure_->code(),
               fmt::format("{} on GPU {} in group \"{}\": {}{}", what, options_.gpu->device(), options_.name,
                           failure_->what(), end),
               failure_->peer());
}

}  // namespace lockstep
