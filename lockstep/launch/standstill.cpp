#include "lockstep/launch/standstill.h"

#include <algorithm>

namespace lockstep::launch {
namespace {

std::uint64_t completed(const std::vector<view::LiveHost>& hosts) {
  std::uint64_t count = 0;
  for (const view::LiveHost& host : hosts) {
    for (const trace::FlightRank& rank : host.record.ranks) {
      count += rank.steps.steps + trace::all_calls(rank).calls;
    }
  }
  return count;
}

/// Of the oldest call for which a rank waits. One that nobody has waited for yet, as for a receive that was posted ahead, has
/// never looked around.
std::chrono::nanoseconds longest_wait(const std::vector<view::LiveHost>& hosts) {
  std::uint64_t longest = 0;
  for (const view::LiveHost& host : hosts) {
    for (const trace::FlightRank& rank : host.record.ranks) {
      for (const trace::OpenCall& call : rank.open_calls) {
        const bool waits = call.looked_ns != 0 && call.failed_ns == 0 && call.arrived_ns <= call.looked_ns;
        if (waits && call.begin_ns < host.record.at_ns)
          longest = std::max(longest, host.record.at_ns - call.begin_ns);
      }
    }
  }
  return std::chrono::nanoseconds(longest);
}

}  // namespace

bool Standstill::look(const std::vector<view::LiveHost>& hosts, Time now) {
  const std::uint64_t count = completed(hosts);
  if (!since_ || count != completed_) {
    completed_ = count;
    since_ = now;
    is_told_ = false;
  }
  if (is_told_ || now - *since_ < after_ || longest_wait(hosts) < after_) return false;
  is_told_ = true;
  return true;
}

}  // namespace lockstep::launch
