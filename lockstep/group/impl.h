// What a Group refers to.
#pragma once

#include <map>

#include "lockstep/backend/backend.h"
#include "lockstep/execute/progress.h"
#include "lockstep/group/group.h"
#include "lockstep/group/spare_memory.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/schedule/select.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/transport/tcp/tcp_transport.h"

namespace lockstep {

/// What the groups of one rank share.
struct Context {
  std::shared_ptr<Store> store;
  std::shared_ptr<void> last_word;  ///< see leave_word_at_death()
  std::shared_ptr<ControlPage> page;
  std::shared_ptr<Progress> progress;
  std::unique_ptr<trace::Recorder> recorder;
  std::shared_ptr<trace::OpenCalls> open_calls;
  std::shared_ptr<trace::GroupNames> group_names;
  Trust trust;
  std::string job;                 ///< in the names of sockets: user, job, restart
  std::vector<std::string> hosts;  ///< world rank -> host, as ranks found out; equal text: same host
  /// World rank -> the one node of its host's memory that it runs beside, -1 where it may run beside several;
  /// empty where ranks are threads.
  std::vector<int> memory_nodes;
  std::vector<int> page_rank;  ///< world rank -> number in the page; -1: another host
  std::string listen_address;  ///< for ranks of other hosts; empty where there are none
  GroupOptions options;
  std::size_t arena_bytes = 0;
  std::size_t mailbox_bytes = std::size_t{256} << 20;
  std::chrono::nanoseconds arrival_timeout{};
  int store_host = -1;   ///< world rank that serves the store; -1: the launcher does
  bool threads = false;  ///< ranks are threads (in_process_world)

  /// What this rank does is recorded as number `rank` of the page.
  void record_as(int rank) {
    recorder = std::make_unique<trace::Recorder>(&page->record(rank));
    open_calls = std::make_shared<trace::OpenCalls>(&page->open_calls(rank));
    group_names = std::make_shared<trace::GroupNames>(&page->groups(rank));
  }
};

class Group::Impl {
 public:
  ~Impl();

  std::string name = "world";
  int rank = 0;
  std::vector<int> world_of{0};  ///< group rank -> world rank
  std::vector<int> local_of{0};  ///< group rank -> number among this host's ranks; -1: another host
  std::shared_ptr<Context> context;
  Tuning tuning;
  std::shared_ptr<Backend> backend;  ///< null in a group of one
  std::shared_ptr<Backend> itself;   ///< of a group of one that sends messages to itself; see to_itself()
  std::shared_ptr<Impl> parent;      ///< keeps the world until its last group is gone
  std::map<std::vector<int>, int> subgroups_made;
  SpareMemory spare_memory;  ///< of calls that need buffers of their own
  std::mutex mutex;          ///< of subgroups_made, itself and spare_memory

  int size() const { return static_cast<int>(world_of.size()); }
};

/// Connects the ranks of a new group: shared memory on this host, sockets to others. Collective over its
/// ranks. `impl` has name, rank, world_of, context, tuning and parent.
void connect(Group::Impl& impl);

/// Group::subgroup(), which decides by `tuning`: the same on all its ranks.
Group make_subgroup(const std::shared_ptr<Group::Impl>& parent, std::span<const int> ranks,
                    const Tuning& tuning);

}  // namespace lockstep
