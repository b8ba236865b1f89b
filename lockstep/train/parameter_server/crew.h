// Who is a server, the coordinator, a worker; and groups of two of them. In a job whose ranks may die and come back they are made as
// workers come; in another one all at the beginning.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/elastic/membership.h"
#include "lockstep/group/group.h"
#include "lockstep/rendezvous/view.h"

namespace lockstep::ps {

enum class Task { server, coordinator, worker };

/// The first ranks are servers, the next one is the coordinator, if there is one, and the others work. Thread safe.
class Crew {
 public:
  /// Throws Error{invalid_argument}: no worker is left, or `lockstep run --role` gives this rank another task.
  Crew(int servers, bool has_coordinator);

  /// Of its environment: how long a client waits for an answer, and a server for a word of a worker that works.
  std::chrono::nanoseconds timeout() const { return timeout_; }

  const Life& self() const { return self_; }
  Task task_of(int rank) const;
  Task task() const { return task_of(self_.rank); }
  int servers() const { return servers_; }
  std::optional<int> coordinator() const { return has_coordinator_ ? std::optional(servers_) : std::nullopt; }

  /// The lives of workers that are in the job, and the number of the view that says so.
  std::vector<Life> workers() const;
  std::uint64_t newest() const;
  /// Of a rank that cannot be started again. Throws Error{aborted} where it is not in the job any more.
  Life life_of(int rank) const;

  /// Whether servers or coordinator have left the job, which they do when all is done. Waits a little for the news of it.
  bool have_hosts_ended() const;

  /// Asks the launcher to go on without it. Throws Error{timeout} with `why` where a job's ranks are those it began with.
  void put_out(int rank, const std::string& why) const;

  /// Collective over the two: `host`, which is rank 0 of it, and `client`. Each pair once. Throws as Membership::group().
  Group pair(const Life& host, const Life& client);
  /// Collective over the servers.
  Group all_servers();

 private:
  std::string another_role(const std::string& given) const;
  static void require_places(const Group& world, bool is_wrong);
  void make_pairs(const Group& world);

  int servers_;
  bool has_coordinator_;
  std::optional<Membership> membership_;
  std::chrono::nanoseconds timeout_;
  Life self_;
  std::vector<Life> fixed_;  // of a job whose ranks are
  std::mutex mutex_;
  std::map<std::pair<int, int>, Group> pairs_;  // that nobody has asked for yet
  std::optional<Group> fixed_servers_;
};

}  // namespace lockstep::ps
