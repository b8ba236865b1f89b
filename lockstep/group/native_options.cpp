#include "lockstep/group/native_options.h"

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

NativeOptions native_options(const Group::Impl& impl, std::shared_ptr<HostRegion> region,
                             std::unique_ptr<Transport> transport) {
  const Context& context = *impl.context;
  return {.name = impl.name,
          .members = impl.members,
          .ranks_per_node = ranks_per_node(impl),
          .region = std::move(region),
          .page = context.page,
          .transport = std::move(transport),
          .progress = context.progress,
          .record = record_places(context),
          .tuning = impl.tuning,
          .mailbox_bytes = context.mailbox_bytes,
          .timeout = context.options.timeout,
          .warn_after = context.options.warn_after,
          .goes_on = context.goes_on};
}

}  // namespace lockstep
