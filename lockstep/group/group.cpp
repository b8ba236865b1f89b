#include "lockstep/group/group.h"

#include <algorithm>
#include <thread>

#include "lockstep/backend/forked.h"
#include "lockstep/backend/gpu/gpu_group.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/keep_for_ever.h"
#include "lockstep/base/per_rank.h"
#include "lockstep/execute/shut_down.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/impl.h"
#include "lockstep/group/in_process.h"
#include "lockstep/memory/arena.h"
#include "lockstep/trace/recorder.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// For as long word of a failure elsewhere may be on its way, or a death not be told from a late goodbye.
constexpr auto word_takes = 500ms;

/// What to throw after `error` came out of making a group. Who serves the store may have ended because of
/// another, of which this rank has not heard yet: its word is on its way in the groups that exist. It naps
/// between looks, since each of them has waits of its own, and none ends by another's news.
Error first_cause(const Group::Impl& parent, const Error& error) {
  if (error.code() != ErrorCode::peer_lost || error.peer() != parent.context->store_host) return error;
  for (const auto deadline = Deadline::after(word_takes); !deadline.expired();
       std::this_thread::sleep_for(5ms)) {
    for (const Group::Impl* group = &parent; group != nullptr; group = group->parent.get()) {
      const auto cause = group->backend ? group->backend->failure() : std::nullopt;
      if (cause) return {cause->code, cause->text, cause->peer()};
    }
  }
  return error;
}

/// Ordinary memory for a group of one: an arena that nobody else sees.
ArenaBlock lonely_block(std::size_t bytes) {
  const std::size_t room = std::max<std::size_t>(bytes, 1) + 64;
  return std::make_shared<Arena>(HostRegion::in_process(1, room), 0)->allocate(bytes);
}

}  // namespace

GroupOptions GroupOptions::from_environment() {
  GroupOptions options;
  options.timeout = env::duration("LOCKSTEP_TIMEOUT").value_or(options.timeout);
  if (options.timeout == 0ns) {
    throw_invalid_argument(
        "LOCKSTEP_TIMEOUT=\"" + env::text("LOCKSTEP_TIMEOUT").value_or("") +
        "\" leaves no rank time to arrive; write for example 30s, or off to wait for ever");
  }
  options.warn_after = env::duration("LOCKSTEP_WARN_AFTER").value_or(options.warn_after);
  return options;
}

Group::Impl::~Impl() { leave(); }

void Group::Impl::shut_down() {
  // Of the group's own end a GPU's calls would tell the others as of a failure.
  for (const auto& gpu : connected_gpus()) gpu->close(shut_down_reason);
  if (backend) backend->close(shut_down_reason);
  leave();
}

void Group::Impl::leave() {
  if (has_left_.exchange(true)) return;
  std::map<int, std::shared_future<OnGpu>>
      ending;  // before this rank says goodbye to those that end them, too
  {
    const std::lock_guard lock(gpu_mutex);
    ending.swap(gpus);
  }
  if (is_forked_child()) {
    // It has copies of the parent's GPU, engines and locks, but not its threads: none of it can be ended.
    base::keep_for_ever(std::move(ending));
    return;
  }
  ending.clear();
  if (!backend) return;
  if (!parent) context->note_leaving();
  if (!parent || context->goes_on) backend->leave();  // else when the last work of it is over
}

std::vector<std::shared_ptr<GpuGroup>> Group::Impl::connected_gpus() {
  const std::lock_guard lock(gpu_mutex);
  std::vector<std::shared_ptr<GpuGroup>> connected;
  for (const auto& [device, gpu] : gpus) {
    if (gpu.wait_for(std::chrono::seconds(0)) != std::future_status::ready) continue;
    try {
      if (gpu.get().group) connected.push_back(gpu.get().group);
    } catch (const Error&) {
      continue;  // it could not connect
    }
  }
  return connected;
}

Group::Group() : impl_(std::make_shared<Impl>()) {
  impl_->context = Context::alone();
  impl_->tuning = Tuning::standard();
}

int Group::rank() const { return impl_->rank(); }
int Group::size() const { return impl_->size(); }
int Group::local_rank() const { return impl_->members.self().local; }
int Group::local_size() const { return impl_->members.local_size(); }

int Group::world_rank(int rank) const {
  if (rank < 0 || rank >= size()) {
    throw_invalid_argument("rank " + std::to_string(rank) + " is not in group \"" + name() + "\" of " +
                           std::to_string(size()));
  }
  return impl_->members[rank].world;
}

const std::string& Group::name() const { return impl_->name; }

Group make_subgroup(const std::shared_ptr<Group::Impl>& parent, std::span<const int> ranks,
                    const Tuning& tuning, const SubgroupWishes& wishes) {
  if (parent->is_shut_down())
    throw Error(ErrorCode::aborted, "subgroup of \"" + parent->name + "\": " + shut_down_reason);
  const Group group(parent);
  auto made = std::make_shared<Group::Impl>();
  std::vector<int> worlds;
  int mine = -1;
  std::string list;
  for (const int rank : ranks) {
    const int world = group.world_rank(rank);
    if (std::ranges::find(worlds, world) != worlds.end()) {
      throw_invalid_argument("subgroup: rank " + std::to_string(rank) + " is listed twice");
    }
    if (rank == parent->rank()) mine = static_cast<int>(worlds.size());
    worlds.push_back(world);
    list += (list.empty() ? "" : ",") + std::to_string(rank);
  }
  if (mine < 0) {
    throw_invalid_argument("subgroup of ranks " + list + ": this rank, " + std::to_string(parent->rank()) +
                           ", is not among them; only members call it");
  }
  {
    const std::lock_guard lock(parent->mutex);
    const int count = ++parent->subgroups_made[wishes.purpose + list];
    made->name = parent->name + "/" + wishes.purpose + list + (count > 1 ? "#" + std::to_string(count) : "");
  }
  made->context = parent->context;
  made->members = Members(mine, worlds, parent->context->places);
  made->tuning = tuning;
  made->parent = parent;
  made->is_for_gpus = wishes.is_for_gpus;
  try {
    if (made->context->threads) {
      connect_in_process(*made);
    } else {
      connect(*made);
    }
  } catch (const Error& error) {
    const Error first = first_cause(*parent, error);
    throw Error(first.code(), "making group \"" + made->name + "\": " + first.what(), first.peer());
  }
  if (!made->is_for_gpus) made->context->note(made);
  return Group(std::move(made));
}

Group Group::subgroup(std::span<const int> ranks) const { return make_subgroup(impl_, ranks, impl_->tuning); }

std::optional<Group> Group::split(std::optional<int> colour, int key) const {
  struct Choice {
    std::int32_t has_colour, colour, key;
  };
  const Choice mine{colour.has_value(), colour.value_or(0), key};
  PerRank<Choice> all(size());
  all_gather(*this, std::span(&mine, 1), all).wait();
  if (!colour) return std::nullopt;
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    const Choice& other = all[rank];
    if (other.has_colour != 0 && other.colour == *colour) ranks.push_back(rank);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return all[a].key < all[b].key; });
  return subgroup(ranks);
}

void Group::throw_too_many(std::size_t elements, std::size_t bytes_of_each) {
  throw_invalid_argument("allocate: " + std::to_string(elements) + " elements of " +
                         std::to_string(bytes_of_each) + " bytes are more than there can be");
}

ArenaBlock Group::allocate_bytes(std::size_t bytes) const {
  return impl_->backend ? impl_->backend->allocate(bytes) : lonely_block(bytes);
}

RegisteredMemory Group::register_bytes(std::span<std::byte> bytes) const {
  return impl_->backend ? impl_->backend->register_memory(bytes) : RegisteredMemory(bytes);
}

void Group::abort(const std::string& reason) const noexcept {
  if (impl_->backend) impl_->backend->abort(reason);
}

void Group::abort(const std::exception& why) const noexcept {
  const auto* error = dynamic_cast<const Error*>(&why);
  const bool is_a_loss = error && error->peer() &&
                         (error->code() == ErrorCode::peer_lost || error->code() == ErrorCode::timeout);
  if (!is_a_loss) return abort(why.what());
  const std::string text = "rank " + std::to_string(world_rank(rank())) + " gave up: " + error->what();
  if (impl_->backend) impl_->backend->fail(Error(error->code(), text, error->peer()));
}

void Group::poll() const {
  if (impl_->backend) impl_->backend->poll();
}

ProgressTimes Group::progress_times() const {
  return {std::chrono::nanoseconds(impl_->backend ? impl_->backend->own_work_ns() : 0)};
}

trace::Recorder& Group::recorder() const { return *impl_->context->recorder; }

}  // namespace lockstep
