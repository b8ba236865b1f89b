// The C interface: the job, its sets of ranks, memory and the timeline.
#include <algorithm>

#include "c/handles.h"
#include "lockstep/group/impl.h"

namespace lockstep::c {
namespace {

/// Among those of all hosts that are as manieth on theirs, in the order of hosts: this rank's number, and how many they are.
std::pair<int, int> cross_place(const Members& members) {
  std::map<int, int> seen;  // ranks of a host so far
  std::vector<int> local;
  for (const int host : members.hosts()) local.push_back(seen[host]++);
  const auto mine = local.begin() + members.rank();
  return {static_cast<int>(std::count(local.begin(), mine, *mine)),
          static_cast<int>(std::count(local.begin(), local.end(), *mine))};
}

/// How many ranks of the set each of its hosts has.
std::vector<int> ranks_of_hosts(const Members& members) {
  std::map<int, int> counts;
  for (const int host : members.hosts()) ++counts[host];
  std::vector<int> all;
  for (const auto& [host, count] : counts) all.push_back(count);
  return all;
}

}  // namespace
}  // namespace lockstep::c

using namespace lockstep::c;  // NOLINT(google-build-using-namespace): the functions below are of no namespace

using lockstep::Group;

int lockstep_init(void) {
  return guarded([] {
    if (Sets::of_process().world_was_told()) return LOCKSTEP_OK;
    Sets::of_process().enter(lockstep::init(), false);
    return LOCKSTEP_OK;
  });
}

int lockstep_init_at(int rank, int size, const char* address, int port) {
  return guarded([&] {
    require(address != nullptr, "the address is NULL");
    require(lockstep_is_initialized() == 0,
            "lockstep_init_at(): there is a world already; lockstep_shutdown() leaves it");
    lockstep::InitOptions options;
    options.rank = rank;
    options.size = size;
    options.address = address;
    options.port = port;
    Sets::of_process().enter(lockstep::init(options), true);
    return LOCKSTEP_OK;
  });
}

int lockstep_shutdown(void) {
  return guarded([] {
    Sets& sets = Sets::of_process();
    std::map<int, std::shared_ptr<Set>> gone;
    std::shared_ptr<lockstep::TimelineRecording> unwritten;
    {
      const std::lock_guard lock(sets.mutex);
      gone.swap(sets.all);
      unwritten.swap(sets.timeline);
    }
    lockstep::shutdown();
    return LOCKSTEP_OK;
  });
}

int lockstep_is_initialized(void) {
  Sets& sets = Sets::of_process();
  const std::lock_guard lock(sets.mutex);
  return sets.all.empty() ? 0 : 1;
}

int lockstep_world_has_changed(void) { return lockstep::world_has_changed() ? 1 : 0; }

int lockstep_worlds(void) { return lockstep::worlds(); }

int lockstep_incarnation(void) {
  try {
    return lockstep::incarnation();
  } catch (...) {
    return 0;
  }
}

int lockstep_set_place(int set, lockstep_place* place) {
  return guarded([&] {
    require(place != nullptr, "there is no place for the answer: NULL");
    const auto of = set_of(set);
    const Group::Impl& impl = of->group.impl();
    const auto counts = ranks_of_hosts(impl.members);
    const auto [cross_rank, cross_size] = cross_place(impl.members);
    *place = {
        .rank = of->group.rank(),
        .size = of->group.size(),
        .local_rank = of->group.local_rank(),
        .local_size = of->group.local_size(),
        .cross_rank = cross_rank,
        .cross_size = cross_size,
        .is_homogeneous = std::ranges::all_of(counts, [&](int count) { return count == counts[0]; }) ? 1 : 0};
    return LOCKSTEP_OK;
  });
}

int lockstep_set_new(const int32_t* ranks, int count, int* set) {
  return guarded([&] {
    require(set != nullptr && (ranks != nullptr || count == 0),
            "the ranks, or the place for the set's number, are NULL");
    require(count > 0, "a set has 1 rank at least");
    const auto world = set_of(LOCKSTEP_WORLD);
    const std::vector<int> listed(ranks, ranks + count);
    auto made = std::make_shared<Set>(world->group.subgroup(listed));
    Sets& sets = Sets::of_process();
    const std::lock_guard lock(sets.mutex);
    *set = sets.next++;
    sets.all.emplace(*set, std::move(made));
    return LOCKSTEP_OK;
  });
}

int lockstep_set_free(int set) {
  return guarded([&] {
    require(set != LOCKSTEP_WORLD, "the world is left by lockstep_shutdown()");
    const auto of = set_of(set);
    Sets& sets = Sets::of_process();
    const std::lock_guard lock(sets.mutex);
    sets.all.erase(set);
    return LOCKSTEP_OK;
  });
}

int lockstep_allocate(int set, size_t bytes, void** data) {
  return guarded([&] {
    require(data != nullptr, "there is no place for the address: NULL");
    auto block = set_of(set)->group.allocate_bytes(bytes);
    *data = block.bytes().data();
    Sets& sets = Sets::of_process();
    const std::lock_guard lock(sets.mutex);
    sets.blocks.emplace(*data, std::move(block));
    return LOCKSTEP_OK;
  });
}

void lockstep_allocate_free(void* data) {
  Sets& sets = Sets::of_process();
  const std::lock_guard lock(sets.mutex);
  sets.blocks.erase(data);
}

int lockstep_register_memory(int set, void* memory, size_t bytes) {
  return guarded([&] {
    Sets& sets = Sets::of_process();
    {
      const std::lock_guard lock(sets.mutex);
      require(!sets.registered.contains(memory),
              "the memory at this address is registered already; lockstep_register_memory_free() ends that");
    }
    auto registered = set_of(set)->group.register_bytes(output_of(memory, bytes));
    const std::lock_guard lock(sets.mutex);
    sets.registered.insert_or_assign(memory, std::move(registered));
    return LOCKSTEP_OK;
  });
}

void lockstep_register_memory_free(void* memory) {
  Sets& sets = Sets::of_process();
  decltype(sets.registered)::node_type ended;  // a copy of the memory, which needs no lock
  const std::lock_guard lock(sets.mutex);
  ended = sets.registered.extract(memory);
}

lockstep_range* lockstep_range_new(const char* name) {
  return new (std::nothrow) lockstep_range{lockstep::TracedRange(name)};
}
void lockstep_range_free(lockstep_range* range) { delete range; }

int lockstep_timeline_start(const char* file) {
  return guarded([&] {
    require(file != nullptr, "the timeline's file is NULL");
    const auto world = set_of(LOCKSTEP_WORLD);
    Sets& sets = Sets::of_process();
    {
      const std::lock_guard lock(sets.mutex);
      require(!sets.timeline, "a timeline was started before; lockstep_timeline_stop() writes it");
    }
    auto timeline = std::make_shared<lockstep::TimelineRecording>(world->group, file);
    const std::lock_guard lock(sets.mutex);
    sets.timeline = std::move(timeline);
    return LOCKSTEP_OK;
  });
}

int lockstep_timeline_stop(void) {
  return guarded([] {
    Sets& sets = Sets::of_process();
    std::shared_ptr<lockstep::TimelineRecording> timeline;
    {
      const std::lock_guard lock(sets.mutex);
      timeline.swap(sets.timeline);
    }
    require(timeline != nullptr, "no timeline was started");
    (void)timeline->write();
    return LOCKSTEP_OK;
  });
}
