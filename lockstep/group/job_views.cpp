// In the store, beside views: "lives/L" where a life is, L as to_text() gives it.
#include "lockstep/group/job_views.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/group/meet_in_view.h"
#include "lockstep/group/preparation.h"
#include "lockstep/rendezvous/view_board.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds longest_nap{10};

std::string key_of(const Life& life) { return "lives/" + to_text(life); }

}  // namespace

JobViews::JobViews(const Identity& identity, EngineChoice engine, Deadline deadline)
    : self_{.rank = identity.rank, .incarnation = *identity.incarnation},
      place_in_page_(identity.place_in_page),
      store_(connect_to_store(identity, deadline)),
      page_(launchers_page(identity.control_fd.value_or(-1), identity.local_size)) {
  if (engine == EngineChoice::mpi) {
    throw_invalid_argument(
        "the engine mpi ends a job when a rank dies; leave LOCKSTEP_ENGINE=mpi out where ranks may "
        "(--tolerate, --restart, --min-np)");
  }
  store_->set(key_of(self_), HostHint::own(engine, place_in_page_));
  page_->status(place_in_page_).pid.store(::getpid());
}

std::uint64_t JobViews::newest() const { return std::max<std::uint64_t>(page_->view(), 1); }

View JobViews::get(std::uint64_t number, Deadline deadline) {
  return ViewBoard(*store_).get(number, deadline);
}

void JobViews::require_not_out() {
  const auto why = ViewBoard(*store_).why_out(self_);
  if (!why) return;
  throw Error(ErrorCode::aborted,
              "rank " + std::to_string(self_.rank) + " is out of the job, which goes on without it: " + *why,
              self_.rank);
}

View JobViews::await_own(Deadline deadline) {
  for (;;) {
    View view = get(newest(), deadline);
    if (view.has(self_)) return view;
    require_not_out();
    page_->status(place_in_page_).wants_in.store(self_.incarnation);
    if (await_after(view.number, deadline)) continue;
    throw Error(ErrorCode::timeout, "rank " + std::to_string(self_.rank) +
                                        ", which was started again, was not let into the job's next view");
  }
}

bool JobViews::await_after(std::uint64_t number, Deadline deadline) const {
  for (std::chrono::milliseconds nap{1}; newest() <= number; nap = std::min(nap * 2, longest_nap)) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(nap);  // the page has a number, and nothing that wakes those who read it
  }
  return true;
}

bool JobViews::meet(Store& store, const View& view, Deadline deadline) const {
  return meet_in_view(
      store, view, self_, [this] { return newest(); }, deadline);
}

HostHint JobViews::hint_of(const Life& life, Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    const auto known = hints_.find(life.rank);
    if (known != hints_.end() && known->second.first == life) return known->second.second;
  }
  HostHint hint = HostHint::parse(life.rank, store_->get(key_of(life), deadline));
  const std::lock_guard lock(mutex_);
  return hints_.insert_or_assign(life.rank, std::pair(life, std::move(hint))).first->second.second;
}

void JobViews::note_working() { page_->status(place_in_page_).has_worked.store(1); }

void JobViews::report(int rank, const std::string& why) {
  page_->first_cause().set(
      {.code = ErrorCode::timeout, .culprit = rank, .reporter = self_.rank, .text = why});
}

}  // namespace lockstep
