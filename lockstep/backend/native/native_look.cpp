// The slow part of a backend's waits: who is missing, dead or silent, and whose fault that is.
#include <algorithm>
#include <set>
#include <span>

#include "lockstep/backend/native/forked.h"
#include "lockstep/backend/native/native_backend.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// A peer that is gone is only to blame when it is still missing after this: what it had sent may be on its
// way.
constexpr std::uint64_t settle_ns = 20'000'000;
// A peer that died although no work waits for it directly is blamed after this: the one waited for may wait
// for it.
constexpr std::uint64_t indirect_ns = 300'000'000;

std::string seconds(std::chrono::nanoseconds duration) {
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(duration).count();
  return milliseconds % 1000 == 0 ? std::to_string(milliseconds / 1000) + " s"
                                  : std::to_string(milliseconds) + " ms";
}

}  // namespace

void NativeBackend::look() {
  // What a peer sent before it left may have come since the last steps were taken; nobody is blamed before
  // that.
  if (advance() || failure_ || active_.empty()) return;
  std::vector<int> missing;
  for (NativeTask* task : active_) {
    const auto more = task->missing();
    task->note_waiting(more);
    missing.insert(missing.end(), more.begin(), more.end());
  }
  if (!missing.empty()) {
    options_.transport->tell_waiting(missing.front());
    told_waiting_ = true;
  }
  look_at_peers(missing);
  for (std::size_t index = 0; index < active_.size() && !failure_; ++index) look_at_clock(*active_[index]);
  look_at_calls();
}

std::optional<FirstCause::Cause> NativeBackend::failure() {
  if (is_forked_child()) return std::nullopt;
  const auto lock = options_.progress->lock();
  if (failure_) return failure_;
  advance();
  notice_failure_elsewhere();
  if (!failure_) look_at_peers({});
  return failure_;
}

void NativeBackend::look_at_calls() {
  const auto is_collective = [](const NativeTask* task) { return !task->is_message(); };
  const auto waiting = std::find_if(active_.begin(), active_.end(), is_collective);
  if (arrivals_ || failure_ || waiting == active_.end()) return;
  try {
    calls_.look(**waiting, trace::now_ns() - (*waiting)->waiting_since_ns);
  } catch (const Error& error) {
    fail(cause_of(error));
  }
}

void NativeBackend::look_at_peers(const std::vector<int>& missing) {
  const auto all_news = options_.transport->look();
  const bool has_dead = std::any_of(all_news.begin(), all_news.end(),
                                    [](const PeerNews& news) { return news.kind == PeerNews::Kind::died; });
  for (const PeerNews& news : all_news) {
    if (news.kind == PeerNews::Kind::failed) return fail(news.cause);
    const std::uint64_t now = trace::now_ns();
    const std::uint64_t since = gone_since_ns_.emplace(news.rank, now).first->second;
    const bool is_missing = std::find(missing.begin(), missing.end(), news.rank) != missing.end();
    // Who left while another is dead did so because of that one, which it met in another group.
    const bool counts = news.kind == PeerNews::Kind::died || (is_missing && !has_dead);
    if (!counts || now - since < (is_missing ? settle_ns : indirect_ns)) continue;
    auto cause = loss(news);
    for (const NativeTask* task : active_) cause.text += unclaimed(*task);
    return fail(std::move(cause));
  }
}

FirstCause::Cause NativeBackend::loss(const PeerNews& news) const {
  const int culprit = world_rank(news.rank);
  // What the launcher saw of it, a signal or an exit code, says more than that it is gone.
  if (auto seen = options_.page->first_cause().get(); seen && seen->culprit == culprit) return *seen;
  const std::string who = "rank " + std::to_string(culprit);
  if (news.kind == PeerNews::Kind::left) {
    return {ErrorCode::peer_lost, culprit, world_rank(rank()),
            who + " left the job while others still needed it"};
  }
  const int page_rank = options_.page_rank[static_cast<std::size_t>(news.rank)];
  const int pid = page_rank < 0 ? 0 : options_.page->status(page_rank).pid.load();
  return {ErrorCode::peer_lost, culprit, world_rank(rank()),
          who + (pid > 0 ? " (pid " + std::to_string(pid) + ")" : "") + " died"};
}

NativeBackend::Culprits NativeBackend::culprits(const std::vector<int>& missing) {
  // A rank that was stopped in its wait had said whom it awaits; by the timeout that has to be too old.
  const auto fresh = std::clamp<std::chrono::nanoseconds>(options_.timeout / 2, 2 * waiting_told_again, 1s);
  std::set<int> guilty;
  std::set<int> circle;
  for (const int first : missing) {
    // Those that wait for another are not to blame: follow them to one who does not, or back into the chain.
    std::vector<int> chain = {first};
    auto next = options_.transport->awaited_by(first, fresh);
    while (next && *next != rank() && std::find(chain.begin(), chain.end(), *next) == chain.end()) {
      chain.push_back(*next);
      next = options_.transport->awaited_by(*next, fresh);
    }
    if (!next) {
      guilty.insert(chain.back());
    } else if (*next == rank()) {
      circle.insert(chain.begin(), chain.end());
      circle.insert(rank());
    } else {
      guilty.insert(std::find(chain.begin(), chain.end(), *next), chain.end());
    }
  }
  const bool is_circle = guilty.empty();
  const auto& named = is_circle ? circle : guilty;
  return {{named.begin(), named.end()}, is_circle};
}

/// What a receive may have meant.
std::string NativeBackend::unclaimed(const NativeTask& task) const {
  constexpr std::size_t most_listed = 3;
  if (task.signature.operation != Operation::receive) return "";
  const std::vector<int> from = task.missing();
  auto messages = mailbox_.unclaimed();
  std::erase_if(messages, [&](const auto& one) { return std::ranges::find(from, one.source) == from.end(); });
  std::string list;
  for (const auto& [source, tag, bytes] : std::span(messages).first(std::min(messages.size(), most_listed))) {
    list += (list.empty() ? "" : ", ") + std::string("tag ") + std::to_string(tag) + " from " +
            names({source}) + " (" + std::to_string(bytes) + " bytes)";
  }
  if (list.empty()) return "";
  return "; messages that nobody receives: " + list + (messages.size() > most_listed ? ", ..." : "");
}

void NativeBackend::look_at_clock(NativeTask& task) {
  const std::vector<int> missing = task.missing();
  const std::uint64_t now = trace::now_ns();
  if (task.waiting_since_ns == 0) task.waiting_since_ns = now;
  const auto waited = std::chrono::nanoseconds(now - task.waiting_since_ns);
  if (missing.empty()) return;
  if (waited >= options_.timeout) {
    if (missing == std::vector{rank()}) {
      const int me = world_rank(rank());
      return fail({ErrorCode::timeout, me, me,
                   names(missing) + " waited for a message of its own, " + seconds(options_.timeout) +
                       " long: it has to send it before it waits, or by another thread" + unclaimed(task)});
    }
    const auto [guilty, is_circle] = culprits(missing);
    if (is_circle) {
      return fail({ErrorCode::timeout, -1, world_rank(rank()),
                   names(guilty) + " waited for each other, " + seconds(options_.timeout) +
                       " long: their calls do not fit together (all receive first, or all send much)" +
                       unclaimed(task)});
    }
    const int one = guilty.size() == 1 ? world_rank(guilty.front()) : -1;
    return fail({ErrorCode::timeout, one, world_rank(rank()),
                 names(guilty) + " did not arrive within " + seconds(options_.timeout) + unclaimed(task)});
  }
  // Whom the others await may be told by ranks that this one is not connected to yet.
  if (waited >= options_.timeout / 2) (void)culprits(missing);
  if (!task.warned && waited >= options_.warn_after) {
    task.warned = true;
    log::warning(to_string(task.signature) + " #" + std::to_string(task.number) + " in group \"" +
                 options_.name + "\" has waited " + seconds(options_.warn_after) + " for " + names(missing) +
                 "; it fails after " +
                 (options_.timeout == std::chrono::nanoseconds::max() ? "ever" : seconds(options_.timeout)));
  }
}

std::string NativeBackend::names(const std::vector<int>& ranks) const {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    text += (index == 0 ? "" : ", ") + std::to_string(world_rank(ranks[index]));
  }
  return text;
}

}  // namespace lockstep
