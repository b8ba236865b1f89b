// Membership: who is in a job whose ranks may die and come back, for programs that make groups of their own of those who live, as
// a parameter server does; init() makes worlds of all who do.
//
//   lockstep run --role server:1 --role worker:4 --restart worker ./train
//
//   lockstep::Membership job;
//   const lockstep::View view = job.view();
//   const auto all = job.group(view);                                              // of all that live
//   const auto pair = job.group(std::array{view.members[0], job.self()}, "push");  // of two of them
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lockstep/group/group.h"
#include "lockstep/group/init.h"
#include "lockstep/rendezvous/view.h"

namespace lockstep {

/// This process's place in such a job. Whoever starts the ranks decides who is in it, by their ends: each change is a view with a
/// number, and all ranks see the same views. A rank that was started again is in the view that is made when its process comes
/// here, or to init(). Copies are the same place; the last one's end is the end of the groups' making, not of the groups.
/// Thread safe.
class Membership {
 public:
  /// Comes to the job. Throws Error: invalid_argument where it was not started by `lockstep run` with --tolerate, --restart or
  /// --min-np; as init() does.
  explicit Membership(const InitOptions& options = {});

  /// Which life of which rank this process is.
  const Life& self() const;
  /// The newest view. Waits until this process is in one. Throws Error{aborted} where it is out of the job, saying why.
  View view() const;
  /// Its number. Cost: a load.
  std::uint64_t newest() const;
  /// Waits for a view after number `number`. False: there was none in that time.
  bool await_after(std::uint64_t number, std::chrono::nanoseconds timeout) const;

  /// A group of all that are in `view`, in its order. Collective over them. nullopt, for all of them, where there is a newer view
  /// before all have come, and at once where this rank made one of a newer view. They make as many of each name in each view.
  /// Throws Error: invalid_argument where this life is not in it; peer_lost where one is out before the group is made, which is in a newer view, too; timeout.
  std::optional<Group> group(const View& view, const std::string& name = "view") const;

  /// A group of these lives, in this order, whose ranks messages call as the launcher does. Collective over them alone: other
  /// groups need not be whole, nor the job's other ranks do anything. They all make their groups of the same lives and name in
  /// the same order. A death closes the groups that the dead rank was in, and no other; their memory is given back when their
  /// last handle is gone.
  /// Throws Error: invalid_argument (this life is not among them, one is twice); peer_lost, naming a rank that is out of the job
  /// before all have come; timeout.
  Group group(std::span<const Life> lives, const std::string& name = "group") const;

  /// Asks the launcher to go on without a rank that does not answer, as a wait that times out does: where it may be done without
  /// (--tolerate), or started again, it is not in the next view. Its process is told when it next comes here, or to init().
  void put_out(int rank, const std::string& why) const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep
