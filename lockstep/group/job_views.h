// How a rank of a job whose ranks may die and come back (`lockstep run --tolerate`, --restart, --min-np) hears who is in it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/group/host_hint.h"
#include "lockstep/group/identity.h"
#include "lockstep/memory/control_page.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/rendezvous/view.h"

namespace lockstep {

/// One for a process. Thread safe.
class JobViews {
 public:
  /// Comes to the store and the launcher's page, and says there where this process is. REQUIRES: identity.incarnation.
  JobViews(const Identity& identity, EngineChoice engine, Deadline deadline);

  const Life& self() const { return self_; }
  const std::shared_ptr<Store>& store() const { return store_; }
  const std::shared_ptr<ControlPage>& page() const { return page_; }

  /// The number of the newest view. Cost: a load.
  std::uint64_t newest() const;
  View get(std::uint64_t number, Deadline deadline);
  /// The newest view, as soon as this process is in it: one that was started again asks to be in the next one. Throws Error:
  /// aborted where this process is out of the job, saying why; timeout.
  View await_own(Deadline deadline);
  /// Until there is a view after number `number`. False: not by the deadline.
  bool await_after(std::uint64_t number, Deadline deadline) const;
  /// meet_in_view() of this process.
  bool meet(Store& store, const View& view, Deadline deadline) const;
  /// Where a life is; of each rank, the life that was asked for last is remembered.
  HostHint hint_of(const Life& life, Deadline deadline);
  /// This process is where the others are: it need not be spared what is over.
  void note_working();
  /// Asks the launcher to go on without a rank that does not answer.
  void report(int rank, const std::string& why);

 private:
  void require_not_out();

  Life self_;
  int place_in_page_;
  std::shared_ptr<Store> store_;
  std::shared_ptr<ControlPage> page_;
  std::mutex mutex_;
  std::map<int, std::pair<Life, HostHint>> hints_;  // by rank
};

}  // namespace lockstep
