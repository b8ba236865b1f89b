#include "lockstep/backend/nccl/nccl_engine.h"

#include <fmt/core.h>

#include <cstring>
#include <thread>
#include <utility>

#include "lockstep/backend/gpu/marked_call.h"
#include "lockstep/base/log.h"
#include "lockstep/base/words.h"

namespace lockstep::nccl {
namespace {

constexpr auto between_looks = std::chrono::milliseconds(1);

}  // namespace

Engine::Engine(Options options, Deadline deadline)
    : options_(std::move(options)),
      library_(Library::get()),
      events_(std::make_shared<GpuEvents>(options_.gpu)) {
  if (options_.store) positions_.emplace(*options_.store, options_.members);
  const cuda::Driver& driver = options_.gpu->driver();
  const Gpu::Current current(*options_.gpu);
  try {
    const UniqueId id = agree_on_id(deadline);
    stream_ = options_.gpu->make_urgent_stream();
    driver.check(driver.allocate(&scratch_, 256), "allocating memory on the GPU");
    connect(id, deadline);
  } catch (...) {
    abort();
    release();
    throw;
  }
  calls_.emplace(library_, comm_, options_.members.rank(), options_.members.size(), stream_,
                 reinterpret_cast<void*>(static_cast<std::uintptr_t>(scratch_)));
}

Engine::~Engine() {
  abort();
  release();
}

UniqueId Engine::agree_on_id(Deadline deadline) {
  UniqueId id{};
  if (options_.members.rank() == 0) {
    if (const Result result = library_.get_unique_id(&id); result != success)
      throw Error(ErrorCode::system, "NCCL cannot begin: " + library_.text_of(result, nullptr));
    if (options_.store) options_.store->set("id", std::string(id.bytes.data(), id.bytes.size()));
  }
  if (!options_.store) return id;
  const std::string bytes = options_.store->get("id", deadline);
  if (bytes.size() != id.bytes.size())
    throw Error(ErrorCode::corrupt_data,
                fmt::format("rank 0's NCCL has an id of {} bytes, not {}", bytes.size(), id.bytes.size()));
  std::memcpy(id.bytes.data(), bytes.data(), id.bytes.size());
  if (options_.store->add("have id", 1) == options_.members.size()) {
    for (const char* const key : {"id", "have id"}) (void)options_.store->erase(key);
  }
  return id;
}

void Engine::connect(const UniqueId& id, Deadline deadline) {
  Config config;
  config.blocking = 0;
  Result result = library_.init_rank(&comm_, options_.members.size(), id, options_.members.rank(), &config);
  for (; result == in_progress; result = ask()) {
    if (deadline.expired()) {
      throw Error(ErrorCode::timeout,
                  fmt::format("NCCL did not connect the ranks of group \"{}\" in time: NCCL_DEBUG=INFO shows "
                              "what it tries; a network that it must not take is left out by "
                              "NCCL_SOCKET_IFNAME",
                              options_.name));
    }
    options_.check();
    std::this_thread::sleep_for(between_looks);
  }
  if (result != success) throw failed(result);
}

/// How the communicator is.
Result Engine::ask() const {
  const std::lock_guard lock(mutex_);
  if (is_aborted_) return success;  // the group has failed, which says more
  Result state = success;
  const Result result = library_.async_error(comm_, &state);
  return result == success ? state : result;
}

GpuEngine::State Engine::state_of(Result result) const {
  if (result == success) return State::settled;
  if (result == in_progress) return State::unsettled;
  throw failed(result);
}

Error Engine::failed(Result result) const {
  const std::lock_guard lock(mutex_);
  return Error(ErrorCode::system, fmt::format("NCCL {} on rank {} says: {}; NCCL_DEBUG=INFO shows more",
                                              library_.version_text(), options_.members.self().world,
                                              library_.text_of(result, is_aborted_ ? nullptr : comm_)));
}

GpuEngine::Placed Engine::put(std::span<const Request> requests, cuda::Stream stream, bool is_captured) {
  auto call = std::make_unique<MarkedCall>(options_.gpu, events_);
  call->begin(requests.front().signature, stream, stream_, is_captured);
  Result result = success;
  {
    const std::lock_guard lock(mutex_);
    if (!is_aborted_) result = calls_->put(requests);
  }
  const State state = state_of(result);
  // What is not settled may not be on the stream yet: NCCL puts it there by a thread of its own, when all ranks are connected.
  if (state == State::settled) call->note_settled();
  return {std::move(call), state};
}

GpuEngine::State Engine::look() { return state_of(ask()); }

void Engine::abort() noexcept {
  std::optional<Gpu::Current> current;
  try {
    current.emplace(*options_.gpu);
  } catch (const Error& error) {  // NCCL finds its own
    log::debug(error.what());
  }
  const std::lock_guard lock(mutex_);
  if (!std::exchange(is_aborted_, true) && comm_ != nullptr) (void)library_.abort(comm_);
}

/// Ends with the others', unless they are gone.
void Engine::end(Deadline deadline, const std::function<bool()>& gives_up) {
  if (is_aborted_) return;
  Result result = library_.finalize(comm_);
  while (result == in_progress && !deadline.expired()) {
    std::this_thread::sleep_for(between_looks);
    if (gives_up()) break;
    result = ask();
  }
  const std::lock_guard lock(mutex_);
  if (!std::exchange(is_aborted_, true))
    (void)(result == success ? library_.destroy(comm_) : library_.abort(comm_));
  if (positions_) positions_->erase();
}

void Engine::release() noexcept {
  const cuda::Driver& driver = options_.gpu->driver();
  try {
    const Gpu::Current current(*options_.gpu);
    if (scratch_ != 0) (void)driver.free(scratch_);
    if (stream_ != nullptr) (void)driver.destroy_stream(stream_);
  } catch (const Error& error) {  // the driver has ended, and all that it had
    log::debug(error.what());
  }
}

void Engine::tell_waiting(std::uint64_t number, const Signature& called) {
  if (positions_) positions_->tell_waiting(number, called);
}

void Engine::tell_through(std::uint64_t number) {
  if (positions_) positions_->tell_through(number);
}

std::vector<int> Engine::missing_in(std::uint64_t number, const Signature& called) {
  return positions_ ? positions_->missing_in(number, called) : std::vector<int>();
}

}  // namespace lockstep::nccl
