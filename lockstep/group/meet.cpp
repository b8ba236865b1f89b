// In the store: "world" what the first rank took for the world's size, "claims/R" how many processes have
// rank R, "rank/R" the hint of rank R, "outcome" how the meeting ended (set once: hints or an error),
// "ticket" how many processes came, "heard/T" that number T of them knows of a failure.
#include "lockstep/group/meet.h"

#include <algorithm>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/words.h"
#include "lockstep/group/told_error.h"

namespace lockstep {
namespace {

constexpr const char* nobody = "-";  // in the place of a hint that will not come any more
constexpr std::size_t most_named = 16;

std::string key_of(int rank) { return "rank/" + std::to_string(rank); }
std::string heard_key(std::int64_t ticket) { return "heard/" + std::to_string(ticket); }

std::string to_outcome(const Error& error) { return "failed\n" + to_text(error); }

std::string to_outcome(const std::vector<std::string>& hints) {
  std::string text = "met\n";
  for (const std::string& hint : hints) text += hint + "\n";
  return text;
}

std::vector<std::string> from_outcome(const std::string& outcome, int size) {
  std::istringstream lines(outcome);
  std::string kind;
  std::getline(lines, kind);
  if (kind == "failed") throw read_error(lines);
  std::vector<std::string> hints;
  for (std::string hint; std::getline(lines, hint);) hints.push_back(hint);
  if (kind != "met" || hints.size() != static_cast<std::size_t>(size)) {
    throw Error(ErrorCode::mismatch, "rank 0 runs another version of Lockstep than this rank", 0);
  }
  return hints;
}

constexpr const char* before_arrival = "all ranks had arrived";

std::string place_of(const Identity& identity) { return "the meeting place " + identity.store.to_string(); }

void ask(const Identity& identity, const std::function<void()>& call) {
  ask_store(identity.store_host(), place_of(identity), before_arrival, call);
}

class Gathering {
 public:
  Gathering(Store& store, const Identity& identity) : store_(store), identity_(identity) {}

  void take_ticket() { ticket_ = store_.add("ticket", 1); }

  void claim_place(const std::string& hint) {
    const std::string rank = std::to_string(identity_.rank);
    const std::string mine = std::to_string(identity_.size) + " " + rank;
    std::istringstream first(store_.compare_set("world", "", mine));
    int size = 0;
    int teller = 0;
    first >> size >> teller;
    most_ranks_ = std::max(most_ranks_, size);
    if (size != identity_.size) {
      throw_invalid_argument("rank " + rank +
                             " was started with WORLD_SIZE=" + std::to_string(identity_.size) + ", rank " +
                             std::to_string(teller) + " of the same job at " + where() +
                             " with WORLD_SIZE=" + std::to_string(size) + "; all ranks need the same");
    }
    if (store_.add("claims/" + rank, 1) > 1) {
      throw_invalid_argument("two processes of the job at " + where() + " have RANK=" + rank +
                             "; each needs one of its own, and each job a port of its own");
    }
    store_.set(key_of(identity_.rank), hint);
  }

  std::vector<std::string> agree(Deadline deadline) {
    try {
      if (identity_.rank != 0) return from_outcome(store_.get("outcome", deadline), identity_.size);
      store_.wait(all_keys(), deadline);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::timeout) throw;
      throw_absent(error);
    }
    return from_outcome(store_.compare_set("outcome", "", to_outcome(hints())), identity_.size);
  }

  /// Makes an end of the meeting for everybody, and returns when all that came know why.
  void call_off(const Error& error) {
    static_cast<void>(store_.compare_set("outcome", "", to_outcome(error)));
    for (const std::string& key : all_keys()) static_cast<void>(store_.compare_set(key, "", nobody));
    store_.set(heard_key(ticket_), "1");
    if (!identity_.hosts_store) return;
    std::int64_t expected = store_.add("ticket", 0);
    // A mistake is found while others are still on their way; after a long wait nobody is.
    const bool is_early = error.code() != ErrorCode::timeout;
    if (is_early) expected = std::max<std::int64_t>(expected, identity_.size);
    std::vector<std::string> others;
    for (std::int64_t ticket = 1; ticket <= expected; ++ticket) others.push_back(heard_key(ticket));
    store_.wait(others, Deadline::after(std::chrono::seconds(is_early ? 1 : 2)));
  }

 private:
  std::string where() const { return identity_.store.to_string(); }

  std::vector<std::string> all_keys() const {
    std::vector<std::string> keys;
    for (int rank = 0; rank < most_ranks_; ++rank) keys.push_back(key_of(rank));
    return keys;
  }

  std::vector<std::string> hints() {
    std::vector<std::string> found;
    for (const std::string& key : all_keys()) found.push_back(store_.try_get(key).value_or(nobody));
    return found;
  }

  [[noreturn]] void throw_absent(const Error& late) {
    std::vector<std::string> found;
    ask(identity_, [&] { found = hints(); });
    std::vector<int> absent;
    for (int rank = 0; rank < identity_.size; ++rank) {
      if (found[static_cast<std::size_t>(rank)] == nobody) absent.push_back(rank);
    }
    if (absent.empty()) throw Error(ErrorCode::timeout, "all ranks arrived, but rank 0 does not go on", 0);
    throw Error(late.code(),
                "waited in vain for " + base::name_ranks(absent, most_named) + " of " +
                    std::to_string(identity_.size) + " to arrive at " + where() +
                    "; were all of them started, with the same MASTER_ADDR, MASTER_PORT and secret, and do "
                    "they reach that address? (LOCKSTEP_INIT_TIMEOUT sets how long to wait)",
                absent.size() == 1 ? std::optional(absent.front()) : std::nullopt);
  }

  Store& store_;
  const Identity& identity_;
  std::int64_t ticket_ = 0;
  int most_ranks_ = identity_.size;  // also by the first comer's count, which may be another
};

}  // namespace

void call_off_without(Store& world, const Error& absent) {
  static_cast<void>(world.compare_set("outcome", "", to_outcome(absent)));
  static_cast<void>(world.compare_set(key_of(absent.peer().value()), "", nobody));
}

std::vector<std::string> meet(Store& store, const Identity& identity, const std::string& hint,
                              Deadline deadline) try {
  Gathering gathering(store, identity);
  ask(identity, [&] { gathering.take_ticket(); });
  try {
    ask(identity, [&] { gathering.claim_place(hint); });
    return gathering.agree(deadline);
  } catch (const Error& error) {
    const bool is_silent = error.code() == ErrorCode::timeout && error.peer() == identity.store_host();
    if (is_silent || error.code() == ErrorCode::peer_lost) throw;
    try {
      gathering.call_off(error);
    } catch (const Error&) {  // some will have to find out by themselves
    }
    throw;
  }
} catch (const Error& error) {
  if (error.code() != ErrorCode::peer_lost || error.peer()) throw;
  throw store_gone(identity.store_host(), place_of(identity), before_arrival);
}

}  // namespace lockstep
