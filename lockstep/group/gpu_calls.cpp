#include "lockstep/group/gpu_calls.h"

#include <algorithm>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/backend/device_arena/arena_engine.h"
#include "lockstep/backend/gpu/gpu_group.h"
#include "lockstep/backend/gpu/gpu_meeting.h"
#include "lockstep/backend/nccl/nccl_engine.h"
#include "lockstep/base/log.h"
#include "lockstep/execute/shut_down.h"
#include "lockstep/group/joining.h"
#include "lockstep/group/native_options.h"

namespace lockstep {
namespace {

std::optional<Error> failure_of(Backend& backend, bool needs_all = false) {
  const auto cause = backend.failure(needs_all);
  return cause ? std::optional(Error(cause->code, cause->text, cause->peer())) : std::nullopt;
}

/// Of the group's `number`th GPUs, where there are other ranks.
std::shared_ptr<Store> store_of(const Group::Impl& impl, std::size_t number) {
  if (impl.size() == 1) return nullptr;
  const Context& context = *impl.context;
  return std::make_shared<WatchedStore>(context.store, "gpus/" + impl.name + "/" + std::to_string(number),
                                        impl.members.worlds(), context.store_host, [backend = impl.backend] {
                                          if (const auto cause = failure_of(*backend)) throw Error(*cause);
                                        });
}

GpuOffer offer_of(const Group::Impl& impl, const Gpu& gpu) {
  GpuOffer offer;
  offer.gpu = gpu.uuid();
  offer.no_arena = device_arena::why_not(impl.members, impl.backend.get());
  try {
    offer.nccl = nccl::Library::get().version_text();
  } catch (const Error& error) {
    offer.no_nccl = error.what();
  }
  return offer;
}

/// The ranks meet, choose an engine, and connect it.
Group::Impl::OnGpu connect_gpus(const Group::Impl& impl, int device, std::size_t number) {
  const Context& context = *impl.context;
  const auto store = store_of(impl, number);
  std::shared_ptr<Gpu> gpu;
  try {
    gpu = Gpu::open(device);
  } catch (const Error& error) {
    if (store) decline_gpus(*store, impl.members, error);
    throw;
  }
  const Deadline deadline = Deadline::after(context.options.timeout);
  const GpuOffer offer = offer_of(impl, *gpu);
  const GpuEngineKind kind =
      store ? meet_on_gpus(*store, impl.members, offer, deadline) : choose_engine(offer);
  GpuEngine::Options of_engine{.name = impl.name,
                               .members = impl.members,
                               .gpu = gpu,
                               .store = store,
                               .backend = impl.backend,
                               .timeout = context.options.timeout,
                               .check = [backend = impl.backend] {
                                 if (!backend) return;
                                 if (const auto cause = failure_of(*backend)) throw Error(*cause);
                               }};
  Group::Impl::OnGpu connected;
  std::unique_ptr<GpuEngine> engine;
  if (kind == GpuEngineKind::nccl) {
    engine = std::make_unique<nccl::Engine>(std::move(of_engine), deadline);
  } else {
    auto arena = std::make_unique<device_arena::Engine>(std::move(of_engine), deadline);
    connected.arena = arena.get();
    engine = std::move(arena);
  }
  connected.messages = engine->messages_at_once();
  GpuGroup::Options options{
      .name = impl.name,
      .record_name = impl.name + " on GPUs" + (number > 0 ? "#" + std::to_string(number + 1) : ""),
      .members = impl.members,
      .gpu = gpu,
      .progress = context.progress,
      .record = record_places(context),
      .timeout = context.options.timeout,
      .warn_after = context.options.warn_after,
      .keep_alive = impl.context};
  if (impl.backend) {
    options.failure_elsewhere = [backend = impl.backend](bool needs_all) {
      return failure_of(*backend, needs_all);
    };
    options.tell_failure = [backend = impl.backend](const Error& cause) { backend->fail(cause); };
  }
  connected.group = GpuGroup::begin(std::move(options), std::move(engine));
  return connected;
}

/// By what all ranks have told each other, they refuse alike. Other failures close the group, so that nobody waits for this rank.
Group::Impl::OnGpu connected(const Group::Impl& impl, int device, std::size_t number) {
  try {
    return connect_gpus(impl, device, number);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported) return {.refusal = error};
    if (impl.backend) impl.backend->fail(error);
    throw;
  }
}

/// While one thread connects, others of the same GPU wait; nobody holds the lock meanwhile.
Group::Impl::OnGpu on_gpu(Group::Impl& impl, int device) {
  std::promise<Group::Impl::OnGpu> made;
  std::shared_future<Group::Impl::OnGpu> result;
  std::size_t number = 0;
  bool connects = false;
  {
    const std::lock_guard lock(impl.gpu_mutex);
    if (impl.is_shut_down()) throw Error(ErrorCode::aborted, shut_down_reason);
    number = impl.gpus.size();
    const auto [place, is_new] = impl.gpus.try_emplace(device);
    connects = is_new;
    if (is_new) place->second = made.get_future().share();
    result = place->second;
  }
  if (connects) {
    try {
      made.set_value(connected(impl, device, number));
    } catch (...) {
      made.set_exception(std::current_exception());
    }
  }
  return result.get();
}

}  // namespace

Work submit_on_gpu(Group::Impl& impl, std::span<const Request> requests) {
  const auto gpu = on_gpu(impl, requests.front().place.device);
  if (gpu.refusal) throw Error(*gpu.refusal);
  std::vector<Work> works;
  for (std::size_t i = 0; i < requests.size(); i += GpuEngine::most_at_once)
    works.emplace_back(
        gpu.group->submit(requests.subspan(i, std::min(GpuEngine::most_at_once, requests.size() - i))));
  return works.size() == 1 ? std::move(works.front()) : Work::all(std::move(works));
}

bool can_call_on_gpu(const Group& group, int device, std::string* why) {
  const auto gpu = on_gpu(group.impl(), device);
  if (gpu.refusal && why != nullptr) *why = gpu.refusal->what();
  return !gpu.refusal;
}

bool shares_gpu(const Group& group, int device) {
  return group.size() > 1 && on_gpu(group.impl(), device).arena != nullptr;
}

std::size_t messages_on_gpu(const Group& group, int device) { return on_gpu(group.impl(), device).messages; }

void say_through_main_memory(const Group& group, const std::string& why) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (group.rank() == 0 && said.insert(why).second)
    log::info("tensors on GPUs go through main memory in group \"" + group.name() + "\": " + why);
}

std::shared_ptr<void> allocate_on_gpu(const Group& group, int device, std::size_t bytes, void** memory) {
  const auto gpu = on_gpu(group.impl(), device);
  if (gpu.refusal) throw Error(*gpu.refusal);
  if (gpu.arena == nullptr) return nullptr;
  const auto block = gpu.arena->allocate(bytes);
  *memory = reinterpret_cast<void*>(static_cast<std::uintptr_t>(block->address()));
  return block;
}

bool has_gpu_driver() {
  static const bool has_one = [] {
    try {
      (void)cuda::Driver::get();
      return true;
    } catch (const Error& error) {
      log::debug(error.what());
      return false;
    }
  }();
  return has_one;
}

bool can_reduce_on_gpu(Dtype dtype, ReduceOp op) { return nccl::can_reduce(dtype, op); }

void require_nccl() try {
  (void)cuda::Driver::get();
  (void)nccl::Library::get();
} catch (const Error& error) {
  throw Error(error.code(), std::string("engine nccl, which moves data between GPUs: ") + error.what() +
                                "; take native or mpi for main memory");
}

}  // namespace lockstep
