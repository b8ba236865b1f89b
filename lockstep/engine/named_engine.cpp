#include "lockstep/engine/named_engine.h"

#include <algorithm>
#include <mutex>

#include "lockstep/base/deadline.h"
#include "lockstep/base/start_thread.h"
#include "lockstep/group/impl.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// A wait sleeps in naps. What it waits for ends a nap at once; naps end by themselves so that it sees what
// other groups do, and, several times within the group's time-out, who is late. The first ones are short,
// later ones long, which cost nothing.
constexpr std::chrono::nanoseconds shortest_nap = 100us, longest_nap = 250ms, shared_nap = 1ms;

// Submissions that follow each other are sent in one message and become one call. It goes out when there are
// this many, or earlier by a wait() or the thread.
constexpr int most_begun = 32;

// How often the thread finds nothing to do before it sleeps until it is called. Calling it costs whoever
// submits some microseconds, which a program that submits all the time should not pay each time.
constexpr int most_idle_naps = 16;

}  // namespace

NamedEngine::~NamedEngine() {
  stops_ = true;
  ++calls_;
  calls_.notify_one();
  if (thread_.joinable()) thread_.join();
}

NamedSet& NamedEngine::add(const Group& group) {
  auto set = std::make_unique<NamedSet>(group, options_);
  const std::lock_guard lock(mutex_);
  return *sets_.emplace_back(std::move(set));
}

bool NamedEngine::advance() noexcept {
  bool has_moved = false;
  for (const auto& set : sets_) has_moved |= set->advance();
  is_under_way_ = !std::ranges::all_of(sets_, &NamedSet::is_idle);
  return has_moved;
}

std::shared_ptr<NamedOperation> NamedEngine::begin(
    const std::function<std::shared_ptr<NamedOperation>()>& call) {
  const std::lock_guard lock(mutex_);
  // Before the call, which the other ranks would wait for.
  if (options_.background_thread && !thread_.joinable() && sets_.front()->group().size() > 1)
    thread_ = start_thread("lockstep-named", [this] { serve(); });
  auto operation = call();
  is_under_way_ = true;
  if (++begun_ % most_begun == 0) (void)advance();
  if (!operation->is_over && thread_.joinable() && is_asleep_.exchange(false)) {
    ++calls_;
    calls_.notify_one();
  }
  return operation;
}

bool NamedEngine::poll(const NamedOperation& operation) {
  if (operation.is_over) return true;
  if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) {
    (void)advance();
  } else {
    is_shared_ = true;
  }
  return operation.is_over;
}

bool NamedEngine::wait(NamedSet& set, const NamedOperation& operation, std::chrono::nanoseconds at_most) {
  if (operation.is_over) return true;
  const Deadline deadline = Deadline::after(at_most);
  std::unique_lock lock(mutex_);
  ++waiting_;
  const auto longest_alone = std::min(longest_nap, set.group().impl().context->options.timeout / 40);
  auto nap = shortest_nap;
  while (true) {
    if (advance()) nap = shortest_nap;
    if (operation.is_over || deadline.expired()) break;
    is_shared_ = is_shared_ || sets_.size() > 1 || mutex_.is_wanted();
    const auto longest = is_shared_ ? shared_nap : longest_alone;
    set.sleep(std::min({nap, longest, std::chrono::nanoseconds(deadline.remaining())}));
    if (nap >= longest) {
      for (const auto& each : sets_) each->look();
    }
    nap = std::min(2 * nap, longest);
    lock.unlock();  // others may have something to submit
    lock.lock();
  }
  --waiting_;
  return operation.is_over;
}

void NamedEngine::abandon(NamedSet& set, const NamedOperation& operation) noexcept {
  const std::lock_guard lock(mutex_);
  if (!operation.is_over) set.abandon();
}

NamedStatistics NamedEngine::statistics(const NamedSet& set) {
  const std::lock_guard lock(mutex_);
  return set.statistics();
}

/// What the thread does while the program is busy: drives everything once, unless somebody else is at it.
bool NamedEngine::drive() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  const bool has_moved = advance();
  for (const auto& set : sets_) set->look();
  return has_moved;
}

void NamedEngine::serve() {
  int idle_naps = 0;
  Doorbell& doorbell = sets_.front()->group().impl().context->page->doorbell();
  while (!stops_) {
    const auto call = calls_.load();
    if (is_under_way_ && waiting_ == 0) {
      idle_naps = 0;
      const auto ticket = doorbell.prepare();
      if (drive()) {
        doorbell.cancel();
      } else {
        doorbell.sleep(ticket, shared_nap);
      }
    } else if (++idle_naps <= most_idle_naps || is_under_way_) {
      // Nobody tells it when a wait() ends or something is submitted: that would cost each of them a wake-up.
      std::this_thread::sleep_for(shared_nap);
    } else {
      is_asleep_ = true;
      // If somebody submits now, either they see is_asleep_ and call, or is_under_way_ is seen here.
      if (!is_under_way_ && !stops_) calls_.wait(call);
      is_asleep_ = false;
      idle_naps = 0;
    }
  }
}

}  // namespace lockstep
