#include "lockstep/group/in_process.h"

#include <numeric>

#include "lockstep/backend/native/native_backend.h"
#include "lockstep/group/impl.h"
#include "lockstep/group/native_options.h"
#include "lockstep/rendezvous/memory_store.h"
#include "lockstep/transport/ring/ring_transport.h"

namespace lockstep {
namespace {

// Threads of one process find each other's memory here: group name -> what they share, while any of them has
// it.
class Meetings {
 public:
  std::shared_ptr<HostRegion> meet(const std::string& name, const Group::Impl& impl) {
    const int ranks = impl.size();
    const std::lock_guard lock(mutex_);
    auto& [region, arrived] = regions_[name];
    if (!region) {
      region = HostRegion::in_process(ranks, own_arena_bytes(impl));
      borrow_arenas(impl, *region);
    }
    auto shared = region;
    if (++arrived == ranks) regions_.erase(name);
    return shared;
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
  auto transport = std::make_unique<RingTransport>(RingTransportOptions{.members = impl.members,
                                                                        .region = region,
                                                                        .page = context.page,
                                                                        .is_alive = [](int) { return true; },
                                                                        .is_whole_job = is_whole_job(impl)});
  return NativeBackend::make(native_options(impl, region, std::move(transport)));
}

}  // namespace

void connect_in_process(Group::Impl& impl) {
  const Context& context = *impl.context;
  if (impl.size() == 1) return;
  const auto region = meetings().meet(context.job + impl.name, impl);
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
    impl->context = Context::of_thread({.rank = rank,
                                        .page = page,
                                        .store = store,
                                        .job = job,
                                        .options = options,
                                        .arena_bytes = arena_bytes});
    std::vector<int> everybody(static_cast<std::size_t>(ranks));
    std::iota(everybody.begin(), everybody.end(), 0);
    impl->members = Members(rank, everybody, impl->context->places);
    impl->tuning = Tuning::from_environment();
    connect_in_process(*impl);
    groups.emplace_back(std::move(impl));
  }
  return groups;
}

}  // namespace lockstep
