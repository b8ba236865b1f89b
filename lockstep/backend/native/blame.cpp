#include "lockstep/backend/native/blame.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <span>

#include "lockstep/backend/mismatch.h"
#include "lockstep/base/log.h"
#include "lockstep/base/words.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// A peer that is gone is only to blame when it is still missing after this: what it had sent may be on its
// way.
constexpr std::uint64_t settle_ns = 20'000'000;
// A peer that died although no work waits for it directly is blamed after this: the one waited for may wait
// for it.
constexpr std::uint64_t indirect_ns = 300'000'000;

bool contains(const std::vector<int>& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

}  // namespace

Blame::Blame(BlameOptions options, GroupParts& parts, const CallNumbers& numbers, Transport& transport)
    : options_(std::move(options)),
      parts_(parts),
      transport_(transport),
      calls_(parts.members, parts.links),
      standstill_(parts, numbers) {}

std::optional<Blame::Cause> Blame::look(const Tasks& waiting) {
  std::vector<int> missing;
  for (const NativeTask* task : waiting) {
    const auto more = task->missing();
    task->note_waiting(more);
    missing.insert(missing.end(), more.begin(), more.end());
  }
  // Nobody asks before half of a time-out.
  const auto waited = longest_wait(waiting);
  if (!missing.empty() && waited >= options_.timeout / 8) {
    const int suspect = parts_.members[most_suspect(missing, waiting)].world;
    transport_.tell_waiting(suspect);
    told_waiting_ = true;
    if (Blame* const all = of_world()) all->note_elsewhere(*this, suspect, waited);
  }
  if (auto cause = look_at_peers(missing, waiting)) return cause;
  for (NativeTask* task : waiting) {
    if (auto cause = look_at_clock(*task)) return cause;
  }
  return look_at_calls(waiting);
}

int Blame::most_suspect(const std::vector<int>& missing, const Tasks& waiting) {
  const std::uint64_t now = trace::now_ns();
  const bool is_soon = std::ranges::none_of(waiting, [&](const NativeTask* task) {
    return task->waiting_since_ns != 0 &&
           std::chrono::nanoseconds(now - task->waiting_since_ns) >= options_.timeout / 4;
  });
  if (missing.size() == 1 || is_soon) return missing.front();
  const auto found = std::ranges::find_if(
      missing, [&](int rank) { return !awaited_by(parts_.members[rank].world, still_waits_after()); });
  return found == missing.end() ? missing.front() : *found;
}

std::chrono::nanoseconds Blame::still_waits_after() const {
  const auto again = waiting_told_again(options_.timeout);
  return std::clamp<std::chrono::nanoseconds>(options_.timeout / 2, 2 * again,
                                              std::max<std::chrono::nanoseconds>(3 * again, 1s));
}

void Blame::tell_idle() {
  transport_.tell_waiting(-1);
  told_waiting_ = false;
  if (Blame* const all = of_world()) all->forget_elsewhere(*this);
}

std::chrono::nanoseconds Blame::longest_wait(const Tasks& waiting) {
  const std::uint64_t now = trace::now_ns();
  std::uint64_t since = now;
  for (const NativeTask* task : waiting) {
    if (task->is_waited_for.load(std::memory_order_relaxed) && task->waiting_since_ns != 0)
      since = std::min(since, task->waiting_since_ns);
  }
  return std::chrono::nanoseconds(now - since);
}

void Blame::note_elsewhere(const Blame& group, int world, std::chrono::nanoseconds waited) {
  if (parts_.is_one_host) return;  // they read it in the page
  elsewhere_[&group] = {world, trace::now_ns() - static_cast<std::uint64_t>(waited.count())};
  tell_elsewhere();
}

void Blame::forget_elsewhere(const Blame& group) {
  if (elsewhere_.erase(&group) == 0) return;
  told_elsewhere_ns_ = 0;
  tell_elsewhere();
}

// The oldest wait, so that several do not take turns; one in the world itself is told by its own looks.
void Blame::tell_elsewhere() {
  const std::uint64_t now = trace::now_ns();
  if (told_waiting_ ||
      std::chrono::nanoseconds(now - told_elsewhere_ns_) < waiting_told_again(options_.timeout) / 2)
    return;
  told_elsewhere_ns_ = now;
  const auto oldest =
      std::ranges::min_element(elsewhere_, {}, [](const auto& one) { return one.second.since_ns; });
  transport_.tell_waiting_afar(oldest == elsewhere_.end() ? -1 : oldest->second.world);
}

std::optional<int> Blame::awaited_by(int world, std::chrono::nanoseconds within) {
  const auto found = transport_.awaited_by(world, within);
  Blame* const all = of_world();
  if (all == nullptr) return found && knows(*found) ? found : std::nullopt;
  return found && all->knows(*found) ? found : all->awaited_by(world, within);
}

void Blame::note_call(std::uint64_t number, const Signature& signature) { calls_.note(number, signature); }

Error Blame::unexpected_on_link() const { return calls_.explain(*parts_.links.stopped_at()); }

Error Blame::misfit_in_mailbox() const {
  const Mailbox::Misfit& misfit = *parts_.mailbox.misfit();
  return mismatch({me(), misfit.receive->signature, misfit.receive->number},
                  {parts_.members[misfit.source].world, misfit.arrived.signature, misfit.arrived.sequence});
}

std::optional<Blame::Cause> Blame::look_at_calls(const Tasks& waiting) {
  const auto is_collective = [](const NativeTask* task) { return !task->is_message(); };
  const auto first = std::find_if(waiting.begin(), waiting.end(), is_collective);
  try {
    // Ranks of one host see in shared memory what the others called.
    if (!parts_.is_one_host && first != waiting.end())
      calls_.look(**first, trace::now_ns() - (*first)->waiting_since_ns);
    standstill_.look(waiting);
  } catch (const Error& error) {
    return cause_of(error);
  }
  return std::nullopt;
}

std::optional<Blame::Cause> Blame::look_at_peers(bool needs_all) {
  std::vector<int> others;
  for (int rank = 0; needs_all && rank < parts_.ranks(); ++rank) {
    if (rank != parts_.rank()) others.push_back(rank);
  }
  return look_at_peers(others, {});
}

std::optional<Blame::Cause> Blame::look_at_peers(const std::vector<int>& missing, const Tasks& waiting) {
  const auto all_news = transport_.look();
  const bool has_dead = std::any_of(all_news.begin(), all_news.end(),
                                    [](const PeerNews& news) { return news.kind == PeerNews::Kind::died; });
  const auto death_here = [&](int world) {
    return std::ranges::find_if(all_news, [&](const PeerNews& news) {
      const Member& member = parts_.members[news.rank];
      return news.kind == PeerNews::Kind::died && member.is_here() && member.world == world;
    });
  };
  const auto is_gone = [&](int rank) {
    return std::ranges::find(all_news, rank, &PeerNews::rank) != all_news.end();
  };
  // What waits for some of several goes on without one that has done its part, and has left.
  const auto has_others_to_wait_for = [&](int rank) {
    return !waiting.empty() && std::ranges::all_of(waiting, [&](const NativeTask* task) {
      const std::vector<int> of_this = task->missing();
      return !contains(of_this, rank) || (task->waits_for_some() && !std::ranges::all_of(of_this, is_gone));
    });
  };
  for (const PeerNews& news : all_news) {
    if (news.kind == PeerNews::Kind::failed) {
      // Of a death on this host more is known here than where it was heard of.
      const auto death = death_here(news.cause.culprit);
      const bool knows_more = news.cause.code == ErrorCode::peer_lost && death != all_news.end();
      return knows_more ? loss(*death) : news.cause;
    }
    const std::uint64_t now = trace::now_ns();
    const std::uint64_t since = gone_since_ns_.emplace(news.rank, now).first->second;
    const bool is_missing = contains(missing, news.rank);
    // Who left while another is dead did so because of that one, which it met in another group.
    const bool counts =
        news.kind == PeerNews::Kind::died || (is_missing && !has_dead && !has_others_to_wait_for(news.rank));
    if (!counts || now - since < (is_missing ? settle_ns : indirect_ns)) continue;
    auto cause = loss(news);
    for (const NativeTask* task : waiting) cause.text += unclaimed(*task);
    return cause;
  }
  return std::nullopt;
}

Blame::Cause Blame::loss(const PeerNews& news) const {
  const Member& culprit = parts_.members[news.rank];
  // What the launcher saw of it, a signal or an exit code, says more than that it is gone.
  if (auto seen = options_.page->first_cause().get(); seen && seen->culprit == culprit.world) return *seen;
  const std::string who = "rank " + std::to_string(culprit.world);
  if (news.kind == PeerNews::Kind::left) {
    const bool has_left_job =
        options_.is_whole_job ||
        (culprit.is_here() && options_.page->status(culprit.page).said_goodbye.load() != 0);
    return {ErrorCode::peer_lost, culprit.world, me(),
            who + " left the " + (has_left_job ? "job" : "group") + " while others still needed it"};
  }
  const int pid = culprit.is_here() ? parts_.region->progress(culprit.local).pid.load() : 0;
  return {ErrorCode::peer_lost, culprit.world, me(),
          who + (pid > 0 ? " (pid " + std::to_string(pid) + ")" : "") + " died"};
}

Blame::Culprits Blame::culprits(const std::vector<int>& missing) {
  const auto fresh = still_waits_after();
  std::set<int> silent, elsewhere, circle, through;
  for (const int first : worlds_of(missing)) {
    // Those that wait for another are not to blame: follow them to one who does not, or back into the chain.
    std::vector<int> chain = {first};
    auto next = awaited_by(first, fresh);
    while (next && *next != me() && std::find(chain.begin(), chain.end(), *next) == chain.end()) {
      chain.push_back(*next);
      next = awaited_by(*next, fresh);
    }
    if (!next) {
      silent.insert(chain.back());
      if (!knows(chain.back())) through.insert(first);
    } else if (*next == me()) {
      circle.insert(chain.begin(), chain.end());
      circle.insert(me());
    } else {
      elsewhere.insert(std::find(chain.begin(), chain.end(), *next), chain.end());
    }
  }
  // Where several are awaited each names but one of them: those that wait for each other all wait for one that says nothing.
  const auto& guilty = silent.empty() ? elsewhere : silent;
  const bool is_circle = guilty.empty();
  const auto& named = is_circle ? circle : guilty;
  return {{named.begin(), named.end()}, {through.begin(), through.end()}, is_circle};
}

std::string Blame::suspicion(const NativeTask& task) const {
  const std::string& text = standstill_.suspicion();
  return task.is_message() || text.empty() ? "" : "; " + text;
}

/// Messages that have arrived and that a receive may have meant.
std::string Blame::unclaimed(const NativeTask& task) const {
  constexpr std::size_t most_listed = 3;
  if (task.signature().operation != Operation::receive) return "";
  const std::vector<int> from = task.missing();
  auto messages = parts_.mailbox.unclaimed();
  std::erase_if(messages, [&](const auto& one) { return std::ranges::find(from, one.source) == from.end(); });
  std::string list;
  for (const auto& [source, tag, bytes] : std::span(messages).first(std::min(messages.size(), most_listed))) {
    list += (list.empty() ? "" : ", ") + std::string("tag ") + std::to_string(tag) + " from " +
            names({source}) + " (" + std::to_string(bytes) + " bytes)";
  }
  if (list.empty()) return "";
  return "; messages that nobody receives: " + list + (messages.size() > most_listed ? ", ..." : "");
}

std::optional<Blame::Cause> Blame::look_at_clock(NativeTask& task) {
  const std::vector<int> missing = task.missing();
  const std::uint64_t now = trace::now_ns();
  if (task.waiting_since_ns == 0) task.waiting_since_ns = now;
  const auto waited = std::chrono::nanoseconds(now - task.waiting_since_ns);
  if (missing.empty()) return std::nullopt;
  if (waited >= options_.timeout) return timed_out(task, missing);
  // Whom the others await may be told by ranks that this one is not connected to yet.
  if (waited >= options_.timeout / 2) (void)culprits(missing);
  if (!task.warned && waited >= options_.warn_after) {
    task.warned = true;
    const bool may_fail = options_.timeout != std::chrono::nanoseconds::max();
    log::warning(fmt::format("{} in group \"{}\" has waited {} for {}{}; it {}",
                             to_string(task.signature(), task.number), options_.group,
                             base::exact_duration(options_.warn_after), names(missing), suspicion(task),
                             may_fail ? "fails after " + base::exact_duration(options_.timeout)
                                      : "waits for ever, as LOCKSTEP_TIMEOUT has it"));
  }
  return std::nullopt;
}

Blame::Cause Blame::timed_out(const NativeTask& task, const std::vector<int>& missing) {
  if (missing == std::vector{parts_.rank()}) {
    return {ErrorCode::timeout, me(), me(),
            names(missing) + " waited for a message of its own, " + base::exact_duration(options_.timeout) +
                " long: it has to send it before it waits, or by another thread" + unclaimed(task)};
  }
  const auto [guilty, through, is_circle] = culprits(missing);
  if (is_circle) {
    return {ErrorCode::timeout, -1, me(),
            base::name_ranks(guilty) + " waited for each other, " + base::exact_duration(options_.timeout) +
                " long: their calls do not fit together (all receive first, or all send much)" +
                suspicion(task) + unclaimed(task)};
  }
  const bool is_one = guilty.size() == 1;
  std::vector<int> here, others;
  for (const int world : guilty) (knows(world) ? here : others).push_back(world);
  std::string who = here.empty() ? "" : base::name_ranks(here);
  if (!others.empty()) {
    who += (here.empty() ? "" : ", and ") + base::name_ranks(through) + ", waiting in another group for " +
           base::name_ranks(others) + ",";
  }
  return {ErrorCode::timeout, is_one ? guilty.front() : -1, me(),
          who + " did not arrive within " + base::exact_duration(options_.timeout) + suspicion(task) +
              unclaimed(task),
          is_one ? std::vector<int>() : guilty};
}

Blame::Cause Blame::cause_of(const Error& error) const {
  const bool ours = error.code() == ErrorCode::mismatch;
  return {error.code(), ours ? -1 : error.peer().value_or(-1), me(), error.what()};
}

Blame::Cause Blame::gave_up(const std::string& what) const {
  return {ErrorCode::peer_lost, me(), me(), "rank " + std::to_string(me()) + " gave up" + what};
}

std::vector<int> Blame::worlds_of(const std::vector<int>& ranks) const {
  std::vector<int> worlds;
  for (const int rank : ranks) worlds.push_back(parts_.members[rank].world);
  return worlds;
}

std::string Blame::names(const std::vector<int>& ranks) const { return base::name_ranks(worlds_of(ranks)); }

}  // namespace lockstep
