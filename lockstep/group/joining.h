// From their meeting until a group is connected, ranks wait for each other in many places: in the store, and
// for whoever hands out shared memory. A rank that fails or dies in between leaves word in the store, and
// each of those waits looks for it, so that all end at once with the first one's name and words.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/group/identity.h"
#include "lockstep/rendezvous/prefix_store.h"

namespace lockstep {

/// Keep the handle as long as this rank is in the job: when the process ends before it goes, the others are
/// told.
[[nodiscard]] std::shared_ptr<void> leave_word_at_death(Store& job, int rank);

/// What to throw after `error` came out of joining: that of the first rank that failed. Tells the others, and
/// where this rank serves the store, gives them a moment to hear of it.
Error first_trouble(Store& job, const Identity& identity, const Error& error);

/// A part of the job's store, whose waits end when one of `world_ranks` is in trouble. Errors besides
/// Store's: peer_lost, naming the rank, and what it said; the store's own name the rank that serves it.
class WatchedStore final : public PrefixStore {
 public:
  /// `store_host`: the rank that serves the store; -1: the launcher.
  /// `check`: called along with the looks for trouble; throws where a wait is in vain for another reason.
  WatchedStore(std::shared_ptr<Store> job, const std::string& prefix, std::vector<int> world_ranks,
               int store_host, std::function<void()> check = {});

  void set(const std::string& key, std::string value) override;
  std::optional<std::string> try_get(const std::string& key) override;
  std::string get(const std::string& key, Deadline deadline) override;
  void wait(std::span<const std::string> keys, Deadline deadline) override;

  /// Throws if one of the ranks is in trouble.
  void check();

 private:
  void in_slices(Deadline deadline, const std::function<void(Deadline)>& call);
  void unless_gone(const std::function<void()>& call) const;
  void ask(const std::function<void()>& call) const;

  std::shared_ptr<Store> job_;
  std::vector<int> world_ranks_;
  int store_host_;
  std::function<void()> check_;
};

}  // namespace lockstep
