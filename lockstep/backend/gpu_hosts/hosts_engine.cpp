#include "lockstep/backend/gpu_hosts/hosts_engine.h"

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "lockstep/base/env.h"
#include "lockstep/base/log.h"
#include "lockstep/base/wait_on.h"
#include "lockstep/trace/clock.h"

namespace lockstep::gpu_hosts {
namespace {

using namespace std::chrono_literals;

// Between two looks of the thread while calls are under way: at first none, then so long.
constexpr int first_looks = 100;
constexpr auto nap = 20us;
// An arena's ranks map each other's new memory when they look.
constexpr auto between_idle_looks = 5ms;
// Until all groups of a rank that has failed have told why.
constexpr auto word_takes = 200ms;
// For copies of a group that was aborted.
constexpr auto draining_takes = 2s;
// Below it a call's kernels, for which a GPU turns from one process to the other, take longer than copies.
constexpr std::size_t usual_sliced_from = std::size_t{256} << 10;
constexpr std::size_t usual_piece_bytes = std::size_t{4} << 20;

}  // namespace

Sizes Sizes::from_environment() {
  Sizes sizes{.sliced_from = env::bytes("LOCKSTEP_GPU_SLICED_FROM").value_or(usual_sliced_from),
              .piece_bytes = env::bytes("LOCKSTEP_GPU_PIECE_BYTES").value_or(usual_piece_bytes)};
  if (sizes.piece_bytes == 0)
    throw_invalid_argument(
        "LOCKSTEP_GPU_PIECE_BYTES=0: pieces that cross between hosts have some bytes; write 4M");
  return sizes;
}

int most_ranks_on_a_host(const Members& members) {
  std::map<int, int> ranks;
  int most = 0;
  for (const Member& one : members) most = std::max(most, ++ranks[one.host]);
  return most;
}

std::string why_not(const Members& members, const Backend& backend) try {
  (void)cuda::SharingDriver::get();
  const int most = most_ranks_on_a_host(members);
  if (most == 1) return "";
  return device_arena::why_not(most, members.local_size() == 1 || backend.host_memory().region != nullptr);
} catch (const Error& error) {
  return error.what();
}

/// Of one call: from the program's stream to the moment at which all of its requests are through.
class Engine::Passage {
 public:
  Passage(const Engine& engine, cuda::Stream stream, const Signature& called)
      : begin(std::make_shared<StreamMark>(engine.road_.events, *engine.options_.gpu)),
        end(engine.flags_->take()) {
    mark_stream_of_program(*engine.options_.gpu, begin->event(), stream, called);
  }

  const std::shared_ptr<StreamMark> begin;  // of the engine's thread
  const std::unique_ptr<HostFlags::Flag> end;
  std::size_t left = 0;  // requests under way; of the engine's thread, once it has arrived
  std::atomic<std::uint64_t> begin_ns = 0, end_ns = 0;
};

class Engine::HostsCall final : public GpuCall {
 public:
  explicit HostsCall(std::shared_ptr<Passage> passage) : passage_(std::move(passage)) {}

  /// One of its requests stays on this host.
  void add(std::unique_ptr<GpuCall> on_host) { on_host_.push_back(std::move(on_host)); }

  bool has_begun() override {
    return (passage_->begin_ns != 0 || passage_->end->is_set()) &&
           std::ranges::all_of(on_host_, [](const auto& part) { return part->has_begun(); });
  }
  bool is_over() override {
    return passage_->end->is_set() &&
           std::ranges::all_of(on_host_, [](const auto& part) { return part->is_over(); });
  }
  void make_wait(cuda::Stream stream) override {
    for (const auto& part : on_host_) part->make_wait(stream);
    passage_->end->make_wait(stream);
  }
  std::uint64_t ns_on_gpu() override {
    std::uint64_t longest = passage_->end_ns - passage_->begin_ns;
    for (const auto& part : on_host_) longest = std::max(longest, part->ns_on_gpu());
    return longest;
  }

 private:
  const std::shared_ptr<Passage> passage_;
  std::vector<std::unique_ptr<GpuCall>> on_host_;
};

Engine::Engine(Options options, Parts parts)
    : options_(std::move(options)),
      groups_(std::move(parts.groups)),
      on_host_(std::move(parts.on_host)),
      most_on_a_host_(parts.most_on_a_host),
      sliced_from_(parts.sizes.sliced_from),
      positions_(*options_.store, options_.members),
      flags_(std::make_shared<HostFlags>(options_.gpu)),
      road_{.gpu = options_.gpu,
            .events = std::make_shared<GpuEvents>(options_.gpu),
            .pinned = std::make_shared<PinnedMemory>(options_.gpu),
            .on_host = on_host_.get(),
            .here = std::move(parts.here),
            .all = std::move(parts.all),
            .peers = std::move(parts.peers),
            .of_peers = std::move(parts.of_peers),
            .slices = parts.slices,
            .piece_bytes = parts.sizes.piece_bytes,
            .is_by_mpi = parts.is_by_mpi} {
  const Gpu::Current current(*options_.gpu);
  road_.down = options_.gpu->make_urgent_stream();
  try {
    road_.up = options_.gpu->make_urgent_stream();
    thread_.emplace("lockstep-hosts", [this] { run(); });
  } catch (const Error&) {
    for (const cuda::Stream stream : {road_.down, road_.up}) {
      if (stream != nullptr) (void)options_.gpu->driver().destroy_stream(stream);
    }
    throw;
  }
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.reset();
  if (!under_way_.empty() || !arrived_.empty()) abort();
  try {
    const Gpu::Current current(*options_.gpu);
    for (const cuda::Stream stream : {road_.down, road_.up})
      (void)options_.gpu->driver().destroy_stream(stream);
  } catch (const Error& error) {  // the driver has ended, and all that it had
    log::debug(error.what());
  }
}

void Engine::require_possible(const Request& request) const {
  if (request.update != nullptr)
    throw Error(ErrorCode::unsupported,
                "an optimizer's step with its sum is for ranks that all share a GPU, not for several hosts");
  if (on_host_) on_host_->require_possible(request);
}

bool Engine::stays_on_host(const Request& request) const {
  return on_host_ && is_message(request.signature.operation) && options_.members[request.peer].is_here();
}

std::unique_ptr<Crossing> Engine::begin_crossing(const Request& request, Passage& passage,
                                                 cuda::Stream stream) {
  const bool is_sliced = on_host_ && request.signature.operation == Operation::all_reduce &&
                         !request.output.empty() && request.output.size() >= sliced_from_;
  if (is_sliced) return std::make_unique<SumOfHosts>(road_, request, stream);
  return std::make_unique<WholeRequest>(road_, request, passage.begin);
}

GpuEngine::Placed Engine::put(std::span<const Request> requests, cuda::Stream stream, bool) {
  const auto passage = std::make_shared<Passage>(*this, stream, requests.front().signature);
  auto call = std::make_unique<HostsCall>(passage);
  std::vector<Traveller> travellers;
  for (const Request& request : requests) {
    if (stays_on_host(request)) {
      Request part = request;
      part.peer = options_.members[request.peer].local;
      call->add(on_host_->put(std::span(&part, 1), stream, false).call);
    } else {
      travellers.push_back({passage, begin_crossing(request, *passage, stream)});
    }
  }
  const std::lock_guard lock(mutex_);
  passage->left = travellers.size();
  if (travellers.empty() || is_aborted_) {
    passage->end->set();
  } else {
    std::ranges::move(travellers, std::back_inserter(arrived_));
    changed_.notify_all();
  }
  return {std::move(call)};
}

/// What has arrived gets under way. REQUIRES: steps_.
void Engine::take_in() {
  const std::lock_guard lock(mutex_);
  std::ranges::move(arrived_, std::back_inserter(under_way_));
  arrived_.clear();
}

void Engine::run() try {
  const Gpu::Current current(*options_.gpu);
  const Gpu::BesideCaptures beside(*options_.gpu);
  for (int looks = 0;; ++looks) {
    bool is_idle = false;
    {
      const std::lock_guard steps(steps_);
      take_in();
      if (!is_aborted_ && advance()) looks = 0;
      is_idle = is_aborted_ || under_way_.empty();
    }
    {
      std::unique_lock lock(mutex_);
      if (is_idle) {
        looks = 0;
        base::wait_on(changed_, lock, [this] { return stops_ || (!arrived_.empty() && !is_aborted_); });
      }
      if (stops_) return;
    }
    looks < first_looks ? std::this_thread::yield() : std::this_thread::sleep_for(nap);
  }
} catch (const std::exception& error) {  // look() throws it, and the group ends all
  const auto* const known = dynamic_cast<const Error*>(&error);
  const std::lock_guard lock(mutex_);
  failure_ = known != nullptr
                 ? *known
                 : Error(ErrorCode::system, std::string("a call between hosts: ") + error.what());
}

/// Whether a step was taken. REQUIRES: steps_.
bool Engine::advance() {
  Turn turn;
  std::set<std::pair<int, bool>> held;  // queues in which one waits
  bool has_moved = false;
  for (auto traveller = under_way_.begin(); traveller != under_way_.end();) {
    auto& [passage, crossing] = *traveller;
    if (passage->begin_ns == 0 && passage->begin->is_reached()) passage->begin_ns = trace::now_ns();
    turn.crosses = !held.contains(crossing->queue());
    const Advance result = crossing->advance(turn);
    if (!crossing->has_crossed()) held.insert(crossing->queue());
    turn.spreads = turn.spreads && crossing->has_spread();
    has_moved = has_moved || result != Advance::waits;
    if (result != Advance::is_over) {
      ++traveller;
      continue;
    }
    if (is_aborted_) return false;  // it may seem to be over because of that
    if (--passage->left == 0) {
      passage->end_ns = trace::now_ns();
      passage->end->set();
    }
    traveller = under_way_.erase(traveller);
  }
  return has_moved;
}

/// Why a call, or a group that carries them, has failed. A rank that fails tells why in each group, and leaves: of the same failure one group
/// may know why before the other, and the other that it has left.
std::optional<Error> Engine::failure() {
  std::optional<Error> loss;
  const auto is_known = [&](const std::optional<Error>& cause) {
    if (cause && !loss) loss = cause;
    return cause && cause->code() != ErrorCode::peer_lost;
  };
  for (auto deadline = Deadline::after(word_takes); !deadline.expired(); std::this_thread::sleep_for(nap)) {
    {
      const std::lock_guard lock(mutex_);
      if (is_known(failure_)) return failure_;
    }
    for (const auto& backend : {road_.all, road_.peers}) {
      auto error = backend ? failure_of(*backend) : std::nullopt;
      if (is_known(error)) return error;
    }
    if (!loss) return std::nullopt;
  }
  return loss;
}

GpuEngine::State Engine::look() {
  if (const auto cause = failure()) throw Error(*cause);
  return on_host_ ? on_host_->look() : State::settled;
}

std::chrono::nanoseconds Engine::looks_when_idle() const {
  return on_host_ ? std::chrono::nanoseconds(between_idle_looks) : 0ns;
}

/// The group's own ways between hosts may not be made yet.
void Engine::tell_failure(const Error& cause) noexcept {
  for (const auto& backend : {road_.all, road_.peers}) {
    if (backend) backend->fail(cause);
  }
}

/// Calls in main memory end first, so that they leave its memory alone; then copies; then the program's streams go on.
void Engine::abort() noexcept {
  if (is_aborted_.exchange(true)) return;
  if (on_host_) on_host_->abort();
  for (const auto& backend : {road_.all, road_.peers}) {
    if (backend) backend->close("calls on GPUs of group \"" + options_.name + "\" have failed");
  }
  const std::lock_guard steps(steps_);
  take_in();
  for (const auto& traveller : under_way_) traveller.crossing->give_up();
  drain();
  for (const auto& traveller : under_way_) traveller.passage->end->set();
  under_way_.clear();
}

/// So that nothing is written to outputs any more, nor to memory that is used again, when calls are over for the program.
void Engine::drain() noexcept try {
  const Gpu::Current current(*options_.gpu);
  const Gpu::BesideCaptures beside(*options_.gpu);
  const Deadline deadline = Deadline::after(draining_takes);
  for (const cuda::Stream stream : {road_.down, road_.up}) {
    StreamMark end(road_.events, *options_.gpu);
    end.set(stream);
    while (!end.is_reached() && !deadline.expired()) std::this_thread::sleep_for(nap);
  }
} catch (const Error& error) {  // the GPU has failed
  log::debug(error.what());
}

void Engine::end(Deadline deadline, const std::function<bool()>& gives_up) {
  if (on_host_) on_host_->end(deadline, gives_up);
  if (!is_aborted_) positions_.erase();
}

void Engine::tell_waiting(std::uint64_t number, const Signature& called) {
  positions_.tell_waiting(number, called);
}

void Engine::tell_through(std::uint64_t number) { positions_.tell_through(number); }

/// Those of this host are seen in its memory.
std::vector<int> Engine::missing_in(std::uint64_t number, const Signature& called) {
  bool awaits_host = false;
  {
    const std::lock_guard steps(steps_);
    const auto first = std::ranges::find_if(under_way_, [](const Traveller& traveller) {
      return traveller.crossing->queue() == Crossing::collectives;
    });
    awaits_host = first != under_way_.end() && first->crossing->awaits_host();
  }
  std::vector<int> missing = awaits_host ? on_host_->missing_in(number, called) : std::vector<int>();
  return missing.empty() ? positions_.missing_in(number, called) : missing;
}

}  // namespace lockstep::gpu_hosts
