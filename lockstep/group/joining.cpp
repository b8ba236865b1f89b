// In the store: "trouble" the first rank in trouble and, on the next line, its words, if it could still say
// any; "heard/R" rank R knows of it.
#include "lockstep/group/joining.h"

#include <algorithm>
#include <sstream>

namespace lockstep {
namespace {

constexpr const char* trouble_key = "trouble";

std::string heard_key(int rank) { return "heard-of-trouble/" + std::to_string(rank); }

std::string trouble(int rank, const std::string& words) { return std::to_string(rank) + "\n" + words; }

struct Trouble {
  int rank = -1;
  std::string words;

  static Trouble read(const std::string& text) {
    Trouble found;
    std::istringstream in(text);
    in >> found.rank;
    in.get();
    found.words.assign(std::istreambuf_iterator<char>(in), {});
    return found;
  }
  Error error() const {
    const std::string who = "rank " + std::to_string(rank);
    return {ErrorCode::peer_lost,
            words.empty() ? who + " ended before all ranks were connected; look at what it printed last"
                          : who + " could not join: " + words,
            rank};
  }
};

}  // namespace

std::shared_ptr<void> leave_word_at_death(Store& job, int rank) {
  return job.bequeath(trouble_key, trouble(rank, ""));
}

Error first_trouble(Store& job, const Identity& identity, const Error& error) {
  try {
    const auto first = Trouble::read(job.compare_set(trouble_key, "", trouble(identity.rank, error.what())));
    job.set(heard_key(identity.rank), "1");
    if (identity.hosts_store) {
      std::vector<std::string> others;
      for (int rank = 0; rank < identity.size; ++rank) {
        if (rank != first.rank) others.push_back(heard_key(rank));
      }
      try {
        job.wait(others, Deadline::after(std::chrono::seconds(1)));
      } catch (const Error&) {  // another one is dead, or on its way here
      }
    }
    return first.rank == identity.rank ? error : first.error();
  } catch (const Error&) {  // the store is gone, and with it whoever served it
    return error;
  }
}

WatchedStore::WatchedStore(std::shared_ptr<Store> job, const std::string& prefix,
                           std::vector<int> world_ranks, int store_host)
    : PrefixStore(job, prefix),
      job_(std::move(job)),
      world_ranks_(std::move(world_ranks)),
      store_host_(store_host) {}

std::string WatchedStore::get(const std::string& key, Deadline deadline) {
  std::string value;
  in_slices(deadline, [&](Deadline slice) { value = PrefixStore::get(key, slice); });
  return value;
}

void WatchedStore::wait(std::span<const std::string> keys, Deadline deadline) {
  in_slices(deadline, [&](Deadline slice) { PrefixStore::wait(keys, slice); });
}

void WatchedStore::check() {
  const auto text = job_->try_get(trouble_key);
  if (!text) return;
  const auto found = Trouble::read(*text);
  if (std::find(world_ranks_.begin(), world_ranks_.end(), found.rank) != world_ranks_.end())
    throw found.error();
}

// A slice that is over costs a connection to the store: they grow, so that a slow start does not flood it.
void WatchedStore::in_slices(Deadline deadline, const std::function<void(Deadline)>& call) {
  constexpr std::chrono::nanoseconds longest = std::chrono::seconds(4);
  std::chrono::nanoseconds length = std::chrono::milliseconds(250);
  for (;; length = std::min(length * 2, longest)) {
    try {
      return call(deadline.earlier_of(Deadline::after(length)));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::peer_lost) throw_store_gone();
      if (error.code() != ErrorCode::timeout) throw;
      check();
      if (deadline.expired()) throw;
    }
  }
}

void WatchedStore::throw_store_gone() const {
  const bool launched = store_host_ < 0;
  throw Error(
      ErrorCode::peer_lost,
      std::string(launched ? "the launcher" : "rank " + std::to_string(store_host_)) +
          ", which holds the job's meeting place, ended before all ranks were connected; look at what it "
          "printed last",
      launched ? std::nullopt : std::optional(store_host_));
}

}  // namespace lockstep
