// In the store: "here/R" rank R has come, "outcome" what has become of it, which is said once: "met", "stale" where a newer view came
// first, or "late R".
#include "lockstep/group/meet_in_view.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

constexpr const char* outcome_key = "outcome";
constexpr const char* met = "met";
constexpr const char* stale = "stale";
constexpr const char* late = "late ";
// From one look for a newer view to the next.
constexpr std::chrono::nanoseconds shortest_look = 5ms, longest_look = 200ms;

std::string here_key(int rank) { return "here/" + std::to_string(rank); }

/// Members of a view come together.
class MeetingInView {
 public:
  MeetingInView(Store& store, const View& view, const Life& self,
                const std::function<std::uint64_t()>& newest)
      : store_(store), view_(view), self_(self), newest_(newest) {}

  /// False: there is a newer view. Throws Error{timeout} naming who has not come.
  bool hold(Deadline deadline) {
    store_.set(here_key(self_.rank), "1");
    const std::string outcome = await_outcome(deadline);
    if (outcome == met) return true;
    if (outcome == stale) return false;
    const int rank = std::atoi(outcome.substr(std::string(late).size()).c_str());
    throw Error(ErrorCode::timeout, why_late(rank), rank);
  }

 private:
  std::string await_outcome(Deadline deadline) {
    const bool is_first = view_.members.front() == self_;
    std::vector<std::string> keys;
    if (is_first) {
      for (const int rank : view_.ranks()) keys.push_back(here_key(rank));
    } else {
      keys.emplace_back(outcome_key);
    }
    for (auto slice = shortest_look;; slice = std::min(2 * slice, longest_look)) {
      try {
        store_.wait(keys, deadline.earlier_of(Deadline::after(slice)));
        return is_first ? settle(met) : store_.get(outcome_key, deadline);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::timeout) throw;
      }
      if (newest_() > view_.number) return settle(stale);
      if (deadline.expired()) return settle(late + std::to_string(who_is_late()));
    }
  }

  std::string settle(const std::string& outcome) { return store_.compare_set(outcome_key, "", outcome); }

  /// The first one where all are there: it has to say so.
  int who_is_late() {
    for (const int rank : view_.ranks()) {
      if (!store_.try_get(here_key(rank))) return rank;
    }
    return view_.members.front().rank;
  }

  std::string why_late(int rank) const {
    return "rank " + std::to_string(rank) + " did not come to view " + std::to_string(view_.number) +
           " (LOCKSTEP_INIT_TIMEOUT says how long it is waited for): does it make groups, or call init() "
           "again, as the "
           "others do?";
  }

  Store& store_;
  const View& view_;
  const Life self_;
  const std::function<std::uint64_t()>& newest_;
};

}  // namespace

bool meet_in_view(Store& store, const View& view, const Life& self,
                  const std::function<std::uint64_t()>& newest, Deadline deadline) {
  return MeetingInView(store, view, self, newest).hold(deadline);
}

}  // namespace lockstep
