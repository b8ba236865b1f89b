// The slow part of a group's waits: who is missing, dead or silent, whom that one waits for itself, and whose
// fault it is that nothing moves. It finds causes; to fail the group is the queue's (native_backend.h).
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/native/call_comparison.h"
#include "lockstep/backend/native/group_parts.h"
#include "lockstep/backend/native/native_task.h"
#include "lockstep/backend/native/standstill.h"

namespace lockstep {

class Blame;

struct BlameOptions {
  std::string group;  ///< its name
  std::shared_ptr<ControlPage> page;
  std::chrono::nanoseconds timeout{};     ///< of a wait without progress
  std::chrono::nanoseconds warn_after{};  ///< of which that is said
  bool is_whole_job = true;               ///< as in NativeOptions
  /// That of the world, of which the group is a part, until that is gone; null where it is the world's itself.
  std::shared_ptr<Blame*> of_world = nullptr;
};

/// One rank's of one group. Under the progress lock.
class Blame {
 public:
  using Cause = FirstCause::Cause;
  using Tasks = std::deque<NativeTask*>;

  /// Borrows all but the options.
  Blame(BlameOptions options, GroupParts& parts, const CallNumbers& numbers, Transport& transport);

  /// Looks at peers, clocks and calls for `waiting`, the works under way, of which there is one at least.
  /// Returns why the group has to fail, if it has to.
  std::optional<Cause> look(const Tasks& waiting);
  /// Looks at peers only: one that died, that says that the group has failed, or, where all are needed, that has left.
  std::optional<Cause> look_at_peers(bool needs_all);
  /// Nothing is under way any more.
  void note_idle() {
    if (told_waiting_) tell_idle();
  }

  /// The group has failed, or ends. What was said last stays said for the moment, for those whose deadline is the same.
  void note_end() {
    if (Blame* const all = of_world()) all->elsewhere_.erase(this);
  }

  /// This rank calls its next collective. Only needed where ranks are on several hosts.
  void note_call(std::uint64_t number, const Signature& signature);
  /// What to throw where a link, or the mailbox, stands still because of a message that does not fit.
  Error unexpected_on_link() const;
  Error misfit_in_mailbox() const;

  Cause cause_of(const Error& error) const;
  /// "rank 1 gave up" and `what`.
  Cause gave_up(const std::string& what) const;

 private:
  void tell_idle();
  std::optional<Cause> look_at_peers(const std::vector<int>& missing, const Tasks& waiting);
  std::optional<Cause> look_at_clock(NativeTask& task);
  std::optional<Cause> look_at_calls(const Tasks& waiting);
  Cause timed_out(const NativeTask& task, const std::vector<int>& missing);
  Cause loss(const PeerNews& news) const;
  /// Whom to tell the others that this rank waits for: of several one that does not wait itself, which is where
  /// their questions have to end.
  int most_suspect(const std::vector<int>& missing, const Tasks& waiting);
  /// How long the longest wait among `waiting` has lasted, of those that a thread is in.
  static std::chrono::nanoseconds longest_wait(const Tasks& waiting);
  Blame* of_world() const { return options_.of_world ? *options_.of_world : nullptr; }
  // Of the world's: another group's, in which this rank waits for `world`, or no more.
  void note_elsewhere(const Blame& group, int world, std::chrono::nanoseconds waited);
  void forget_elsewhere(const Blame& group);
  void tell_elsewhere();
  /// For whom `world` waits, in whatever group, as far as it said so in this last time. Both are ranks of the world.
  std::optional<int> awaited_by(int world, std::chrono::nanoseconds within);
  bool knows(int world) const { return parts_.members.rank_of(world).has_value(); }
  /// How old the word of a rank may be that it waits. One that was stopped while it waited had said so: by the
  /// time-out that has to be too old, or it would pass for one that waits.
  std::chrono::nanoseconds still_waits_after() const;
  struct Culprits {
    std::vector<int> worlds;
    std::vector<int> through =
        {};                  ///< of those awaited here, who wait for one of them that is not in this group
    bool is_circle = false;  ///< each waits for the next, and this rank is one of them
  };
  Culprits culprits(const std::vector<int>& missing);
  /// What may be why `task` waits; empty, or with "; " before it.
  std::string suspicion(const NativeTask& task) const;
  std::string unclaimed(const NativeTask& task) const;
  std::vector<int> worlds_of(const std::vector<int>& ranks) const;
  std::string names(const std::vector<int>& ranks) const;
  int me() const { return parts_.members.self().world; }

  BlameOptions options_;
  GroupParts& parts_;
  Transport& transport_;
  CallComparison calls_;
  Standstill standstill_;
  std::map<int, std::uint64_t> gone_since_ns_;  // peers that died or left, by rank
  bool told_waiting_ = false;
  /// Of the world's: for whom this rank waits in other groups, and since when.
  struct Elsewhere {
    int world = -1;
    std::uint64_t since_ns = 0;
  };
  std::map<const Blame*, Elsewhere> elsewhere_;
  std::uint64_t told_elsewhere_ns_ = 0;
};

}  // namespace lockstep
