#include "lockstep/group/gpu_calls.h"

#include <algorithm>
#include <future>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/backend/device_arena/arena_engine.h"
#include "lockstep/backend/gpu/gpu_group.h"
#include "lockstep/backend/gpu/gpu_meeting.h"
#include "lockstep/backend/gpu_hosts/hosts_engine.h"
#include "lockstep/backend/nccl/nccl_engine.h"
#include "lockstep/base/log.h"
#include "lockstep/execute/shut_down.h"
#include "lockstep/group/joining.h"
#include "lockstep/group/native_options.h"
#include "lockstep/schedule/hosts.h"

namespace lockstep {
namespace {

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
  const bool is_one_host = impl.members.are_on_one_host();
  offer.no_arena = is_one_host
                       ? device_arena::why_not(impl.size(), impl.backend && impl.backend->shared_region())
                       : gpu_hosts::why_not(impl.members, *impl.backend);
  const auto sizes = gpu_hosts::Sizes::from_environment();
  offer.sliced_from = sizes.sliced_from;
  offer.piece_bytes = sizes.piece_bytes;
  try {
    offer.nccl = nccl::Library::get().version_text();
  } catch (const Error& error) {
    offer.no_nccl = error.what();
  }
  return offer;
}

/// Groups for calls on GPUs alone, whose order is not that of the program's calls in main memory, and whose deadlines begin when the GPU
/// comes to them.
struct HostGroups {
  Group all, here, peers;
};

/// What carries the calls on a host, and between hosts, of the rank's `number`th GPU. Collective. Throws unsupported on all ranks alike.
gpu_hosts::Engine::Parts hosts_of(Group::Impl& impl, const GpuEngine::Options& of_group, std::size_t number,
                                  Deadline deadline) {
  // Works may keep these groups longer than it lives, but they do not come back to it.
  const std::shared_ptr<Group::Impl> parent(std::shared_ptr<Group::Impl>(), &impl);
  const std::string of_gpus = "gpus" + (number > 0 ? "#" + std::to_string(number + 1) : "");
  const auto make = [&](const std::vector<int>& ranks, const std::string& purpose) {
    return make_subgroup(parent, ranks, impl.tuning,
                         {.purpose = of_gpus + " " + purpose + " of ranks ", .is_for_gpus = true});
  };
  const schedule::Hosts hosts(
      Call{.rank = impl.rank(), .ranks = impl.size(), .host_of = impl.members.hosts()});
  const auto groups = std::make_shared<HostGroups>();
  gpu_hosts::Engine::Parts parts{.groups = groups,
                                 .slices = hosts.slices,
                                 .most_on_a_host = gpu_hosts::most_ranks_on_a_host(impl.members),
                                 .is_by_mpi = impl.context->mpi != nullptr};
  std::vector<int> everybody(static_cast<std::size_t>(impl.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  groups->all = make(everybody, "between hosts");
  parts.all = groups->all.impl().backend;
  if (parts.most_on_a_host == 1) return parts;  // nobody has anything to add up before
  if (hosts.owns_one()) {
    std::vector<int> peers;
    for (int host = 0; host < hosts.count(); ++host) peers.push_back(hosts.owner(host, hosts.local));
    groups->peers = make(peers, "slices");
    parts.peers = groups->peers.impl().backend;
    parts.of_peers = {.rank = groups->peers.rank(), .ranks = groups->peers.size()};
  }
  groups->here = make(hosts.here(), "host");
  const Group::Impl& here = groups->here.impl();
  parts.here = here.members;
  GpuEngine::Options of_host = of_group;
  of_host.members = here.members;
  of_host.store = store_of(here, number);
  of_host.backend = here.backend;
  std::string refusal;
  try {
    parts.on_host = std::make_unique<device_arena::Engine>(std::move(of_host), deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    refusal = error.what();
  }
  agree_on_hosts(*of_group.store, impl.members, refusal, deadline);
  return parts;
}

/// The ranks meet, choose an engine, and connect it.
Group::Impl::OnGpu connect_gpus(Group::Impl& impl, int device, std::size_t number) {
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
  const GpuChoice choice = store ? meet_on_gpus(*store, impl.members, offer, deadline) : choose_engine(offer);
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
  switch (choice.kind) {
    case GpuEngineKind::nccl: engine = std::make_unique<nccl::Engine>(std::move(of_engine), deadline); break;
    case GpuEngineKind::device_arena: {
      auto arena = std::make_unique<device_arena::Engine>(std::move(of_engine), deadline);
      connected.arena = arena.get();
      connected.is_shared_by_all = true;
      engine = std::move(arena);
      break;
    }
    case GpuEngineKind::gpu_hosts: {
      auto parts = hosts_of(impl, of_engine, number, deadline);
      parts.sizes = {.sliced_from = choice.sliced_from, .piece_bytes = choice.piece_bytes};
      connected.arena = parts.on_host.get();
      engine = std::make_unique<gpu_hosts::Engine>(std::move(of_engine), std::move(parts));
      break;
    }
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
Group::Impl::OnGpu connected(Group::Impl& impl, int device, std::size_t number) {
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
  return group.size() > 1 && on_gpu(group.impl(), device).is_shared_by_all;
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
