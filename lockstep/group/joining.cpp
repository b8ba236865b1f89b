// In the store: "trouble" what the first rank in trouble could still say, "ended" the ranks that could not
// say anything, "heard-of-trouble/R" rank R knows of it.
#include "lockstep/group/joining.h"

#include <algorithm>
#include <sstream>

#include "lockstep/group/told_error.h"

namespace lockstep {
namespace {

constexpr const char* trouble_key = "trouble";
constexpr const char* ended_key = "ended";
constexpr const char* meeting_place = "the job's meeting place";
constexpr const char* until_connected = "all ranks were connected";
// How long a wait goes on before it looks for trouble. Who serves the store stays twice as long.
constexpr std::chrono::nanoseconds longest_joining_slice = std::chrono::seconds(1);

std::string heard_key(int rank) { return "heard-of-trouble/" + std::to_string(rank); }

/// What a rank in trouble tells the others: its number, and its error.
struct Trouble {
  int teller = -1;
  Error told;

  static Trouble read(const std::string& text) {
    std::istringstream in(text);
    int teller = -1;
    in >> teller;
    return {teller, read_error(in)};
  }
  std::string text() const { return std::to_string(teller) + " " + to_text(told); }
  /// The teller, or whom it waited for in vain.
  int culprit() const { return told.peer().value_or(teller); }
  /// As another rank throws it.
  Error error() const {
    if (culprit() != teller) return told;
    return {ErrorCode::peer_lost, "rank " + std::to_string(teller) + " could not join: " + told.what(),
            teller};
  }
};

Error ended(int rank) {
  return {
      ErrorCode::peer_lost,
      "rank " + std::to_string(rank) + " ended before all ranks were connected; look at what it printed last",
      rank};
}

std::vector<int> ended_ranks(Store& job) {
  std::vector<int> ranks;
  std::istringstream in(job.try_get(ended_key).value_or(""));
  for (int rank = 0; in >> rank;) ranks.push_back(rank);
  return ranks;
}

/// Returns when all that can have heard of the first trouble.
void await_hearing(Store& job, int ranks, int culprit) {
  const auto dead = ended_ranks(job);
  std::vector<std::string> others;
  for (int rank = 0; rank < ranks; ++rank) {
    const bool hears = rank != culprit && std::find(dead.begin(), dead.end(), rank) == dead.end();
    if (hears) others.push_back(heard_key(rank));
  }
  try {
    job.wait(others, Deadline::after(2 * longest_joining_slice));
  } catch (const Error& error) {  // another one is dead, or stopped
    if (error.code() != ErrorCode::timeout) throw;
  }
}

}  // namespace

std::shared_ptr<void> leave_word_at_death(Store& job, int rank) {
  return job.bequeath(ended_key, std::to_string(rank) + " ");
}

Error first_trouble(Store& job, const Identity& identity, const Error& error) {
  try {
    const auto first = Trouble::read(job.compare_set(trouble_key, "", Trouble{identity.rank, error}.text()));
    job.set(heard_key(identity.rank), "1");
    if (identity.hosts_store) await_hearing(job, identity.size, first.culprit());
    // Who is blamed by another knows better itself what went wrong.
    const bool is_mine = first.teller == identity.rank || first.culprit() == identity.rank;
    return is_mine ? error : first.error();
  } catch (const Error&) {  // the store is gone, and with it whoever served it
    return error;
  }
}

WatchedStore::WatchedStore(std::shared_ptr<Store> job, const std::string& prefix,
                           std::vector<int> world_ranks, int store_host, std::function<void()> check)
    : PrefixStore(job, prefix),
      job_(std::move(job)),
      world_ranks_(std::move(world_ranks)),
      store_host_(store_host),
      check_(std::move(check)) {}

void WatchedStore::set(const std::string& key, std::string value) {
  ask([&] { PrefixStore::set(key, std::move(value)); });
}

std::optional<std::string> WatchedStore::try_get(const std::string& key) {
  std::optional<std::string> value;
  ask([&] { value = PrefixStore::try_get(key); });
  return value;
}

std::string WatchedStore::get(const std::string& key, Deadline deadline) {
  std::string value;
  in_slices(deadline, [&](Deadline slice) { value = PrefixStore::get(key, slice); });
  return value;
}

void WatchedStore::wait(std::span<const std::string> keys, Deadline deadline) {
  in_slices(deadline, [&](Deadline slice) { PrefixStore::wait(keys, slice); });
}

void WatchedStore::check() {
  if (check_) check_();
  const auto is_ours = [&](int rank) {
    return std::find(world_ranks_.begin(), world_ranks_.end(), rank) != world_ranks_.end();
  };
  ask([&] {
    if (const auto text = job_->try_get(trouble_key)) {
      const auto found = Trouble::read(*text);
      if (is_ours(found.culprit()) || is_ours(found.teller)) throw found.error();
    }
    const auto dead = ended_ranks(*job_);
    const auto one = std::find_if(dead.begin(), dead.end(), is_ours);
    if (one != dead.end()) throw ended(*one);
  });
}

// A slice that is over costs a connection to the store: they grow, so that a slow start does not flood it.
void WatchedStore::in_slices(Deadline deadline, const std::function<void(Deadline)>& call) {
  std::chrono::nanoseconds length = longest_joining_slice / 4;
  for (;; length = std::min(length * 2, longest_joining_slice)) {
    try {
      return unless_gone([&] { call(deadline.earlier_of(Deadline::after(length))); });
    } catch (const Error& error) {
      if (error.code() != ErrorCode::timeout) throw;
      check();
      if (deadline.expired()) throw;
    }
  }
}

void WatchedStore::unless_gone(const std::function<void()>& call) const {
  try {
    call();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::peer_lost || error.peer()) throw;  // the store's own names nobody
    throw store_gone(store_host_, meeting_place, until_connected);
  }
}

void WatchedStore::ask(const std::function<void()>& call) const {
  ask_store(store_host_, meeting_place, until_connected, call);
}

}  // namespace lockstep
