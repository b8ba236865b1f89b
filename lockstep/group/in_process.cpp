#include "lockstep/group/in_process.h"

#include "lockstep/backend/native/native_backend.h"
#include "lockstep/group/impl.h"
#include "lockstep/group/native_options.h"
#include "lockstep/rendezvous/memory_store.h"
#include "lockstep/transport/memory/memory_transport.h"
#include "lockstep/transport/ring_transport.h"

namespace lockstep {
namespace {

// Threads of one process find each other's memory here: group name -> what they share, while any of them has
// it.
class Meetings {
 public:
  SharedByThreads meet(const std::string& name, int ranks, std::size_t arena_bytes) {
    const std::lock_guard lock(mutex_);
    auto& [region, arrived] = regions_[name];
    auto shared = region;
    if (!shared) shared = region = SharedByThreads::make(ranks, arena_bytes).region;
    if (++arrived == ranks) regions_.erase(name);
    return {std::move(shared), nullptr};
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::pair<std::shared_ptr<HostRegion>, int>> regions_;
};

Meetings& meetings() {
  static Meetings instance;
  return instance;
}

/// For ranks that are all threads of this process.
std::shared_ptr<Backend> make_backend(const Group::Impl& impl, const std::shared_ptr<HostRegion>& region) {
  const Context& context = *impl.context;
  std::vector<int> page_rank;
  for (const int world : impl.world_of)
    page_rank.push_back(context.page_rank[static_cast<std::size_t>(world)]);
  auto transport =
      std::make_unique<RingTransport>(RingTransportOptions{.rank = impl.rank,
                                                           .local_of = impl.local_of,
                                                           .status_of = page_rank,
                                                           .world_of = impl.world_of,
                                                           .region = region,
                                                           .page = context.page,
                                                           .is_alive = [](int) { return true; }});
  return NativeBackend::make(native_options(impl, region, page_rank, std::move(transport)));
}

}  // namespace

void connect_in_process(Group::Impl& impl) {
  const Context& context = *impl.context;
  impl.local_of.clear();
  for (int rank = 0; rank < impl.size(); ++rank) impl.local_of.push_back(rank);
  if (impl.size() == 1) return;
  const auto region = meetings().meet(context.job + impl.name, impl.size(), context.arena_bytes).region;
  impl.backend = make_backend(impl, region);
}

Backend& to_itself(Group::Impl& impl) {
  const std::lock_guard lock(impl.mutex);
  if (!impl.itself) impl.itself = make_backend(impl, HostRegion::in_process(1, 0));
  return *impl.itself;
}

std::vector<Group> in_process_world(int ranks, const GroupOptions& options, std::size_t arena_bytes) {
  static std::atomic<std::uint64_t> worlds = 0;
  const std::string job = "threads-" + std::to_string(++worlds);
  const auto page = std::make_shared<ControlPage>(ControlPage::in_process(ranks));
  const auto store = std::make_shared<MemoryStore>();
  std::vector<Group> groups;
  for (int rank = 0; rank < ranks; ++rank) {
    auto impl = std::make_shared<Group::Impl>();
    impl->rank = rank;
    impl->world_of.clear();
    for (int other = 0; other < ranks; ++other) impl->world_of.push_back(other);
    auto context = std::make_shared<Context>();
    for (int other = 0; other < ranks; ++other) context->page_rank.push_back(other);
    context->store = store;
    context->page = page;
    context->progress = std::make_shared<Progress>(page, WaitPolicy::for_ranks_per_core(ranks));
    context->record_as(rank);
    context->job = job;
    context->options = options;
    context->arena_bytes = arena_bytes;
    impl->tuning = Tuning::from_environment();
    context->threads = true;
    impl->context = std::move(context);
    connect_in_process(*impl);
    groups.emplace_back(std::move(impl));
  }
  return groups;
}

}  // namespace lockstep
