// What all groups of one rank share: its job, how its ranks meet, what it is recorded as. There are three kinds of
// ranks, and a factory for each.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/mpi/mpi_library.h"
#include "lockstep/base/per_rank.h"
#include "lockstep/base/process_status.h"
#include "lockstep/base/proof.h"
#include "lockstep/execute/progress.h"
#include "lockstep/group/group.h"
#include "lockstep/memory/control_page.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/transport/members.h"
#include "lockstep/view/profile/profile_options.h"

namespace lockstep {

struct Context {
  /// Of a world of one.
  static std::shared_ptr<Context> alone();

  /// One of several ranks that are threads of this process.
  struct Thread {
    int rank = 0;
    std::shared_ptr<ControlPage> page = {};  ///< all ranks share it
    std::shared_ptr<Store> store = {};       ///< likewise
    std::string job = {};
    GroupOptions options = {};
    std::size_t arena_bytes = 0;
  };
  static std::shared_ptr<Context> of_thread(Thread thread);

  /// A rank that is a process and has come to its job's meeting place.
  struct Arrival {
    std::shared_ptr<Store> store = {};
    Trust trust = {};
    std::string job = {};
    std::string socket_prefix = {};
    int store_host = -1;
    GroupOptions options = {};
    std::size_t arena_bytes = 0;
    std::chrono::nanoseconds arrival_timeout{};
  };
  /// It makes groups once it has been given its page, with join_page(), and places.
  static std::shared_ptr<Context> of_process(Arrival arrival);

  /// This rank is number `rank` of the host's page, is recorded there, and waits by `policy`.
  void join_page(std::shared_ptr<ControlPage> its_page, int rank, const WaitPolicy& policy);

  /// The same, by what `other` has joined: the page has one writer for each rank.
  void join_page_with(const std::shared_ptr<Context>& other);

  /// A group of this rank, for shut_down().
  void note(const std::shared_ptr<Group::Impl>& group);
  /// All its groups are closed for this rank, the ones made last first, and it leaves its world.
  void shut_down();

  /// In the page: what the process has taken until now. The last rank of a page of our own leaves the profile that
  /// `profile` wishes for.
  void note_leaving() const;

  std::shared_ptr<Store> store;
  std::shared_ptr<void> last_word;  ///< see leave_word_at_death()
  std::shared_ptr<ControlPage> page;
  int rank_in_page = 0;
  base::CoreTimes times_at_start;  ///< when it joined the page
  view::ProfileOptions profile;    ///< of a page that no launcher looks after
  std::shared_ptr<Progress> progress;
  std::shared_ptr<trace::Recorder> recorder;
  std::shared_ptr<trace::Totals> totals;
  std::shared_ptr<trace::OpenCalls> open_calls;
  std::shared_ptr<trace::GroupNames> group_names;
  Trust trust;
  std::string job;            ///< its name, the same on all hosts
  std::string socket_prefix;  ///< begins the names of its sockets on this host
  /// Of the world's ranks: where they are; and the one node of its host's memory that each runs beside, -1 where
  /// it may run beside several (none where ranks are threads).
  PerRank<HostPlace> places;
  PerRank<int> memory_nodes;
  std::shared_ptr<MpiLibrary> mpi;            ///< where it carries collectives between hosts
  std::vector<std::string> listen_addresses;  ///< for ranks of other hosts; empty where there are none
  GroupOptions options;
  std::optional<Dtype> wire_dtype;  ///< InitOptions::wire_dtype
  std::size_t arena_bytes = 0;
  std::size_t mailbox_bytes = std::size_t{256} << 20;
  std::chrono::nanoseconds arrival_timeout{};
  int store_host = -1;   ///< world rank that serves the store; -1: the launcher does
  bool threads = false;  ///< ranks are threads (in_process_world)
  bool goes_on = false;  ///< whoever leaves a group is still in the job, whose ranks may die and come back

 private:
  std::shared_ptr<Context> other_;  // that it has joined the page with
  std::mutex mutex_;
  std::vector<std::weak_ptr<Group::Impl>> groups_;
};

}  // namespace lockstep
