#include "lockstep/view/report/meeting_sums.h"

#include <algorithm>
#include <functional>

namespace lockstep::view {

void MeetingSums::add(std::vector<Arrival> arrivals) {
  std::ranges::sort(arrivals, {}, &Arrival::at_ns);
  const std::uint64_t first = arrivals.front().at_ns, last = arrivals.back().at_ns;
  const std::size_t n = arrivals.size();
  double waited = 0;
  for (const Arrival& one : arrivals) waited += static_cast<double>(last - one.at_ns);
  sums_.wait_ns += waited / static_cast<double>(n);
  ++sums_.count;
  const std::uint64_t before = arrivals[n - 2].at_ns;
  if (last == before) return;  // nobody is late
  const std::size_t others = n - 1;
  const std::uint64_t median = (arrivals[(others - 1) / 2].at_ns + arrivals[others / 2].at_ns) / 2;
  OfRank& late = ranks_[arrivals.back().place];
  late.after_median.push_back(static_cast<double>(last - median));
  late.after_first.push_back(static_cast<double>(last - first));
  late.gain += static_cast<double>(last - before);
}

Meetings MeetingSums::finish(const std::vector<RankTimeline>& ranks) {
  const auto count = static_cast<double>(std::max<std::size_t>(sums_.count, 1));
  sums_.wait_ns /= count;
  for (auto& [place, of] : ranks_) {
    sums_.ranks.push_back({.rank = ranks[place].rank,
                           .last = of.after_median.size(),
                           .median_late_ns = median_of(of.after_median),
                           .median_behind_first_ns = median_of(of.after_first),
                           .most_late_ns = std::ranges::max(of.after_first),
                           .gain_ns = of.gain / count});
  }
  std::ranges::stable_sort(sums_.ranks, std::greater<>(), &Lateness::last);
  return std::move(sums_);
}

}  // namespace lockstep::view
