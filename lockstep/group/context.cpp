#include "lockstep/group/context.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "lockstep/base/process_costs.h"
#include "lockstep/base/process_status.h"
#include "lockstep/group/impl.h"
#include "lockstep/trace/clock.h"
#include "lockstep/view/profile/page_record.h"
#include "lockstep/view/profile/run_profile.h"

namespace lockstep {
namespace {

// One that was killed has not said so.
bool have_all_left(const ControlPage& page) {
  for (int rank = 0; rank < page.local_ranks(); ++rank) {
    const RankStatus& status = page.status(rank);
    const pid_t pid = status.pid.load();
    const bool is_gone = pid != 0 && ::kill(pid, 0) != 0 && errno == ESRCH;
    if (status.left_at_ns.load() == 0 && !is_gone) return false;
  }
  return true;
}

}  // namespace

std::shared_ptr<Context> Context::alone() {
  auto context = std::make_shared<Context>();
  context->places = {{.page = 0}};
  context->join_page(std::make_shared<ControlPage>(ControlPage::in_process(1)), 0, WaitPolicy());
  return context;
}

std::shared_ptr<Context> Context::of_thread(Thread thread) {
  auto context = std::make_shared<Context>();
  const int ranks = thread.page->local_ranks();
  for (int rank = 0; rank < ranks; ++rank) context->places.push_back({.page = rank});
  context->store = std::move(thread.store);
  context->job = std::move(thread.job);
  context->options = thread.options;
  context->arena_bytes = thread.arena_bytes;
  context->threads = true;
  context->join_page(std::move(thread.page), thread.rank, WaitPolicy::for_ranks_per_core(ranks));
  return context;
}

std::shared_ptr<Context> Context::of_process(Arrival arrival) {
  auto context = std::make_shared<Context>();
  context->store = std::move(arrival.store);
  context->trust = std::move(arrival.trust);
  context->job = std::move(arrival.job);
  context->socket_prefix = std::move(arrival.socket_prefix);
  context->store_host = arrival.store_host;
  context->options = arrival.options;
  context->arena_bytes = arrival.arena_bytes;
  context->arrival_timeout = arrival.arrival_timeout;
  return context;
}

void Context::join_page(std::shared_ptr<ControlPage> its_page, int rank, const WaitPolicy& policy) {
  page = std::move(its_page);
  times_at_start = base::own_core_times();
  rank_in_page = rank;
  progress = std::make_shared<Progress>(page, policy);
  recorder = std::make_shared<trace::Recorder>(&page->record(rank));
  totals = std::make_shared<trace::Totals>(&page->totals(rank));
  open_calls = std::make_shared<trace::OpenCalls>(&page->open_calls(rank));
  group_names = std::make_shared<trace::GroupNames>(&page->groups(rank));
}

void Context::join_page_with(const std::shared_ptr<Context>& other) {
  other_ = other;
  page = other->page;
  rank_in_page = other->rank_in_page;
  times_at_start = other->times_at_start;
  progress = other->progress;
  recorder = other->recorder;
  totals = other->totals;
  open_calls = other->open_calls;
  group_names = other->group_names;
}

void Context::note(const std::shared_ptr<Group::Impl>& group) {
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [](const auto& other) { return other.expired(); });
  groups_.push_back(group);
}

void Context::shut_down() {
  std::vector<std::shared_ptr<Group::Impl>> there;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& group : groups_) {
      if (auto impl = group.lock()) there.push_back(std::move(impl));
    }
  }
  for (; !there.empty(); there.pop_back()) there.back()->shut_down();
}

void Context::note_leaving() const {
  if (!threads) trace::set_current_spans(nullptr);
  RankStatus& status = page->status(rank_in_page);
  const base::ProcessCosts costs = base::own_costs();
  status.user_ns.store(costs.user_ns);
  status.system_ns.store(costs.system_ns);
  status.most_resident_bytes.store(costs.most_resident_bytes);
  const base::CoreTimes times = base::own_core_times();
  status.on_core_ns.store(times.on_core_ns - std::min(times.on_core_ns, times_at_start.on_core_ns));
  status.core_wait_ns.store(times.waited_ns - std::min(times.waited_ns, times_at_start.waited_ns));
  status.left_at_ns.store(trace::now_ns());
  if (profile.folder.empty() || !have_all_left(*page) || !page->take_profile_turn()) return;
  trace::FlightRecord record = view::read_record(*page);
  record.job = job;
  const std::string lines = view::leave_profile(profile, record, "lockstep");
  (void)!::write(STDERR_FILENO, lines.data(), lines.size());
}

}  // namespace lockstep
