// What the ranks of a host do while they run, read again and again from their control page: their record, and what it has no
// running numbers of: memory, the program's own counters, and who came last to collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/memory/control_page.h"
#include "lockstep/trace/flight_record.h"
#include "lockstep/view/live/arrival_matcher.h"

namespace lockstep::view {

struct NamedValue {
  std::string name = {};
  double value = 0;
};

/// What is known of a rank beside its record.
struct LiveRank {
  int rank = 0;                      ///< world rank
  std::uint64_t resident_bytes = 0;  ///< of its process now; 0: that is gone, or has not joined
  std::uint64_t user_ns = 0;         ///< of its process so far
  std::uint64_t system_ns = 0;
  std::uint64_t last_arrivals = 0;  ///< collectives to which it came last, of those that were counted
  std::vector<std::uint64_t> late =
      {};  ///< of those since the look before: nanoseconds after the one before it
  std::vector<NamedValue> counters = {};  ///< traced_counter(), as last set
};

struct LiveHost {
  trace::FlightRecord record =
      {};  ///< with the last events of each rank only; states of processes are left open
  std::vector<LiveRank> ranks = {};  ///< as record.ranks
};

class LiveReader {
 public:
  static constexpr std::size_t events_kept = 64;  ///< of each rank, in the record
  enum class From { beginning, now };

  /// Borrows the page. `world_ranks`: as read_record() takes them. `ranks_in_all`: of all hosts whose records will be joined.
  /// `from`: which collectives count for last_arrivals.
  explicit LiveReader(const ControlPage& page, std::vector<int> world_ranks = {}, int ranks_in_all = 0,
                      From from = From::beginning);

  /// As it is now. Of the collectives since the last look those count that the rings still hold, and all of whose ranks are
  /// of this host. Changes nothing in the page.
  LiveHost look();

 private:
  struct Rank {
    std::uint64_t calls = 0, spans = 0;  // read so far
    LiveRank live = {};
    std::map<std::string, double> counters = {};
  };

  void count_arrivals(const trace::FlightRecord& record);
  void read_counters(std::size_t place);
  void read_process(std::size_t place, const trace::FlightRank& rank);

  const ControlPage& page_;
  std::vector<int> world_ranks_;
  int ranks_in_all_;
  std::vector<Rank> ranks_;
  ArrivalMatcher arrivals_;
};

}  // namespace lockstep::view
