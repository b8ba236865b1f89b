// Adds up meetings of a kind: how long ranks waited in them, and for whom.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/view/report/analysis.h"

namespace lockstep::view {

/// When a rank came to a meeting.
struct Arrival {
  std::size_t place;  ///< in Timeline::ranks
  std::uint64_t at_ns;
};

class MeetingSums {
 public:
  explicit MeetingSums(std::string kind) { sums_.kind = std::move(kind); }

  /// Of two ranks at least.
  void add(std::vector<Arrival> arrivals);
  /// Once.
  Meetings finish(const std::vector<RankTimeline>& ranks);

 private:
  struct OfRank {
    std::vector<double> after_median = {}, after_first = {};
    double gain = 0;
  };
  Meetings sums_;
  std::map<std::size_t, OfRank> ranks_;
};

}  // namespace lockstep::view
