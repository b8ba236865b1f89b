#include "lockstep/group/native_options.h"

#include <algorithm>

namespace lockstep {

NativeOptions native_options(const Group::Impl& impl, std::shared_ptr<HostRegion> region,
                             std::vector<int> page_rank, std::unique_ptr<Transport> transport) {
  const Context& context = *impl.context;
  const auto& local = impl.local_of;
  return {.name = impl.name,
          .rank = impl.rank,
          .world_of = impl.world_of,
          .one_host = std::ranges::find(local, -1) == local.end(),
          .region = std::move(region),
          .region_rank = local[static_cast<std::size_t>(impl.rank)],
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
