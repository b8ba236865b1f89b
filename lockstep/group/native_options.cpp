#include "lockstep/group/native_options.h"

#include <map>
#include <vector>

namespace lockstep {

int ranks_per_node(const Group::Impl& impl) {
  const PerRank<int>& found = impl.context->memory_nodes;
  const int told = impl.tuning.ranks_per_node;
  if (!impl.members.are_on_one_host() || (told == 0 && found.empty())) return 0;
  std::vector<int> nodes;
  for (const Member& member : impl.members)
    nodes.push_back(told > 0 ? member.page / told : found[member.world]);
  return schedule::ranks_per_node(nodes);
}

RecordPlaces record_places(const Context& context) {
  return {.recorder = context.recorder.get(),
          .totals = context.totals,
          .open_calls = context.open_calls,
          .group_names = context.group_names,
          .sent = &context.page->sent(context.rank_in_page)};
}

HostMemory lent_to(const Group::Impl& impl) {
  const bool has_parent = impl.parent && impl.parent->backend;
  return has_parent ? impl.parent->backend->host_memory() : HostMemory();
}

bool is_whole_job(const Group::Impl& impl) { return !impl.parent && !impl.context->goes_on; }

std::size_t own_arena_bytes(const Group::Impl& impl) {
  return lent_to(impl).arena ? 0 : impl.context->arena_bytes;
}

void borrow_arenas(const Group::Impl& impl, HostRegion& region) {
  const HostMemory lender = lent_to(impl);
  if (!lender.arena) return;
  std::map<int, int> places;
  for (const Member& one : impl.parent->members) places[one.world] = one.local;
  std::vector<int> borrowed;
  for (const int world : impl.members.local_worlds()) borrowed.push_back(places.at(world));
  region.borrow_arenas(lender.region, borrowed);
}

namespace {

std::shared_ptr<Blame*> blame_of_world(const Group::Impl& impl) {
  const Group::Impl* group = &impl;
  while (group->parent) group = group->parent.get();
  const auto* const world =
      group == &impl ? nullptr : dynamic_cast<const NativeBackend*>(group->backend.get());
  return world != nullptr ? world->blame() : nullptr;
}

}  // namespace

NativeOptions native_options(const Group::Impl& impl, std::shared_ptr<HostRegion> region,
                             std::unique_ptr<Transport> transport) {
  const Context& context = *impl.context;
  constexpr auto never = std::chrono::nanoseconds::max();
  return {.name = impl.name,
          .members = impl.members,
          .ranks_per_node = ranks_per_node(impl),
          .region = std::move(region),
          .arena = lent_to(impl).arena,
          .page = context.page,
          .transport = std::move(transport),
          .progress = context.progress,
          .record = record_places(context),
          .tuning = impl.tuning,
          .mailbox_bytes = context.mailbox_bytes,
          .timeout = impl.is_for_gpus ? never : context.options.timeout,
          .warn_after = impl.is_for_gpus ? never : context.options.warn_after,
          .goes_on = context.goes_on,
          .is_whole_job = is_whole_job(impl),
          .blame_of_world = blame_of_world(impl)};
}

}  // namespace lockstep
