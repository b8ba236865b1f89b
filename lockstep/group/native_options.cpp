#include "lockstep/group/native_options.h"

#include <algorithm>

namespace lockstep {

bool is_on_one_host(const Group::Impl& impl) {
  return std::ranges::find(impl.local_of, -1) == impl.local_of.end();
}

int ranks_per_node(const Group::Impl& impl) {
  const std::vector<int>& found = impl.context->memory_nodes;
  const int told = impl.tuning.ranks_per_node;
  if (!is_on_one_host(impl) || (told == 0 && found.empty())) return 0;
  std::vector<int> nodes;
  for (const int world : impl.world_of) {
    const auto at = static_cast<std::size_t>(world);
    nodes.push_back(told > 0 ? impl.context->page_rank[at] / told : found[at]);
  }
  return ranks_per_node(nodes);
}

NativeOptions native_options(const Group::Impl& impl, std::shared_ptr<HostRegion> region,
                             std::vector<int> page_rank, std::unique_ptr<Transport> transport) {
  const Context& context = *impl.context;
  return {.name = impl.name,
          .rank = impl.rank,
          .world_of = impl.world_of,
          .one_host = is_on_one_host(impl),
          .ranks_per_node = ranks_per_node(impl),
          .region = std::move(region),
          .region_rank = impl.local_of[static_cast<std::size_t>(impl.rank)],
          .page = context.page,
          .page_rank = std::move(page_rank),
          .transport = std::move(transport),
          .progress = context.progress,
          .recorder = context.recorder.get(),
          .open_calls = context.open_calls,
          .group_names = context.group_names,
          .tuning = impl.tuning,
          .mailbox_bytes = context.mailbox_bytes,
          .timeout = context.options.timeout,
          .warn_after = context.options.warn_after};
}

}  // namespace lockstep
