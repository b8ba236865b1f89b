// A flight record holds what every rank did on its own. Here it is put together: where each rank was at one
// moment, that of the failure, and for whom it waited there.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/trace/flight_record.h"

namespace lockstep::view {

/// A call in which a rank waited.
struct Wait {
  const trace::OpenCall* call = nullptr;
  std::vector<int> ranks = {};  ///< world ranks, in ascending order; never empty
  bool any_will_do = false;     ///< a receive from any source; else it needs all of them
};

struct Standing {
  const trace::FlightRank* rank = nullptr;
  std::vector<const trace::OpenCall*> calls = {};     ///< under way, the oldest first
  std::vector<Wait> waits = {};                       ///< in those of them that waited
  const trace::CollectiveEvent* last_call = nullptr;  ///< the last one that was over, and well
  const trace::OpenCall* next_call = nullptr;         ///< the first one that it began afterwards
};

/// Borrows the record.
class Situation {
 public:
  explicit Situation(const trace::FlightRecord& record);

  const trace::FlightRecord& record() const { return record_; }
  /// The first failure of a call; the last one where a rank was lost, because it does not come back, and some
  /// of those that need it come later; of a job without failed calls what the record says.
  std::uint64_t moment_ns() const { return moment_ns_; }
  std::uint64_t since(std::uint64_t ns) const { return moment_ns_ > ns ? moment_ns_ - ns : 0; }
  const std::vector<Standing>& standings() const { return standings_; }
  /// nullptr: a rank of another host.
  const Standing* find(int world_rank) const;
  /// Those that waited for `world_rank`, each with the call in which it did.
  std::vector<std::pair<const Standing*, const trace::OpenCall*>> waiting_for(int world_rank) const;
  /// "in group "world/0,2"", to follow a call.
  std::string in_group(std::uint32_t number) const;

  /// What all ranks called as one number of one group.
  struct Called {
    int rank = 0;                                  ///< world rank
    const trace::OpenCall* call = nullptr;         ///< under way or failed, at whatever time
    const trace::CollectiveEvent* over = nullptr;  ///< one that is over, where `call` is null
  };
  using Key = std::pair<std::uint32_t, std::uint64_t>;  ///< group, sequence
  /// Of collectives that did not complete on all ranks, in the order of their first beginning. Each rank
  /// once.
  const std::vector<std::vector<Called>>& meetings() const { return meetings_; }

 private:
  void find_moment();
  void place(const trace::FlightRank& rank);
  void gather_meetings();
  void find_waits(Standing& standing);
  std::vector<int> awaited(const Standing& standing, const trace::OpenCall& call) const;
  std::vector<int> not_there(int rank, const trace::OpenCall& call) const;
  std::vector<int> members(std::uint32_t group) const;

  const trace::FlightRecord& record_;
  std::uint64_t moment_ns_ = 0;
  std::map<std::uint32_t, const trace::FlightGroup*> groups_;
  std::vector<Standing> standings_;
  std::vector<std::vector<Called>> meetings_;
  std::map<Key, std::set<int>> there_;  // world ranks that were in a collective by then, or through it
};

}  // namespace lockstep::view
