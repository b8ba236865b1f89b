// What a Group refers to.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/base/error.h"
#include "lockstep/execute/progress.h"
#include "lockstep/group/context.h"
#include "lockstep/group/group.h"
#include "lockstep/group/spare_memory.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/schedule/select.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/transport/members.h"
#include "lockstep/transport/tcp/tcp_transport.h"

namespace lockstep {

class GpuGroup;
namespace device_arena {
class Engine;
}

class Group::Impl {
 public:
  ~Impl();

  std::string name = "world";
  Members members;
  std::shared_ptr<Context> context;
  Tuning tuning;
  std::shared_ptr<Backend> backend;  ///< null in a group of one
  std::shared_ptr<Backend> itself;   ///< of a group of one that sends messages to itself; see to_itself()
  std::shared_ptr<Impl> parent;      ///< keeps the world until its last group is gone
  bool is_for_gpus =
      false;  ///< carries what lies on them: who makes its calls looks at the clock, and ends it
  std::function<void()> check;  ///< while it is made, now and then: throws if one of its ranks will not come
  std::map<std::string, int> subgroups_made;  ///< by purpose and ranks
  std::map<std::string, int>
      hosts_seen;            ///< of a job whose ranks may die and come back: the numbers of its hosts
  SpareMemory spare_memory;  ///< of calls that need buffers of their own
  std::mutex mutex;          ///< of subgroups_made, hosts_seen, itself and spare_memory
  /// One of this rank's GPUs that was used.
  struct OnGpu {
    std::shared_ptr<GpuGroup> group = nullptr;
    device_arena::Engine* arena = nullptr;        ///< of `group`, where its ranks on this host share the GPU
    bool is_shared_by_all = false;                ///< by all ranks of `group`, which are on this host then
    std::size_t messages = 0;                     ///< as GpuEngine::messages_at_once()
    std::optional<Error> refusal = std::nullopt;  ///< instead: the same on all ranks
  };
  std::map<int, std::shared_future<OnGpu>> gpus;  ///< by the GPU's number; not ready while it connects
  std::mutex gpu_mutex;                           ///< of gpus

  int rank() const { return members.rank(); }
  int size() const { return members.size(); }

  /// Ends it for this rank, whoever still has it: as if the last of its Groups were gone.
  void shut_down();
  bool is_shut_down() const { return has_left_.load(); }

 private:
  void leave();
  std::vector<std::shared_ptr<GpuGroup>> connected_gpus();
  std::atomic<bool> has_left_ = false;
};

/// Connects the ranks of a new group: shared memory on this host, sockets to others. Collective over its
/// ranks. `impl` has name, members, context, tuning and parent.
void connect(Group::Impl& impl);

struct SubgroupWishes {
  std::string purpose = {};  ///< stands before the ranks in its name
  bool is_for_gpus = false;  ///< as in Group::Impl
};
/// Group::subgroup(), which decides by `tuning`. All of it the same on all its ranks.
Group make_subgroup(const std::shared_ptr<Group::Impl>& parent, std::span<const int> ranks,
                    const Tuning& tuning, const SubgroupWishes& wishes = {});

}  // namespace lockstep
