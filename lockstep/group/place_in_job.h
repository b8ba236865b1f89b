// What a process keeps of its place in a job from one world to the next. Ranks find each other by how many worlds they have come
// to: each has a part of the job's store to itself, and names of its own for groups and sockets.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "lockstep/group/identity.h"
#include "lockstep/group/impl.h"
#include "lockstep/group/job_views.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/rendezvous/store_server.h"

namespace lockstep {

/// Of a process that its environment makes a rank.
struct PlaceInJob {
  std::mutex mutex;  ///< for all that is here, and for joining and leaving as a whole
  std::string job;   ///< of which it is: where that meets, and as which rank; "": none yet
  int worlds = 0;    ///< of that job that it has come to
  std::shared_ptr<StoreServer> server =
      {};  ///< on the rank that serves the store, until the process ends: others may be later
  std::shared_ptr<JobViews> views = {};    ///< where its ranks may die and come back
  std::weak_ptr<Context> joined = {};      ///< likewise: what has joined the page, for all its groups
  std::uint64_t view = 0;                  ///< of these, to whose world it came last
  int attempts = 0;                        ///< and how often to that one's
  std::weak_ptr<Group::Impl> world = {};   ///< the one it is in
  std::weak_ptr<Group::Impl> latest = {};  ///< that init() has returned, also to a rank whom InitOptions name

  static PlaceInJob& of_process();
};

/// The store of a whole job, and the part of it that a world has to itself. "worlds" in it: how many have begun.
struct JobStore {
  std::shared_ptr<Store> whole = {};
  std::shared_ptr<Store> of_world = {};

  /// `number`: of the world, from 0. `server` lives as long as it is used.
  static JobStore open(std::shared_ptr<StoreServer> server, std::shared_ptr<Store> whole, int number);
  /// For who comes to world `number`. Throws Error{mismatch} where the others are further.
  void require_not_later(const Identity& identity, int number) const;
  /// All have come to world `number`, and so have left those before it, whose keys are needed no more.
  void note_begun(int number) const;
};

/// "", and of the second world "#2".
std::string suffix_of_world(int number);

}  // namespace lockstep
