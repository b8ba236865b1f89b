#include "lockstep/trace/clock_offset.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "lockstep/base/words.h"

namespace lockstep::trace {
namespace {

// Over a shorter time what exchanges differ by says nothing of drift.
constexpr std::int64_t least_drifting_ns = 1'000'000'000;

}  // namespace

std::uint64_t clock_of_this_system() {
  const auto content = [](const char* path) {
    std::ifstream file(path);
    return std::string{std::istreambuf_iterator<char>(file), {}};
  };
  const std::string system = content("/proc/sys/kernel/random/boot_id");
  // A container may have a clock that is offset.
  return std::hash<std::string>()((system.empty() ? base::host_name() : system) +
                                  content("/proc/self/timens_offsets"));
}

void ClockOffset::add(std::uint64_t asked_ns, std::uint64_t told_ns, std::uint64_t heard_ns) {
  const std::uint64_t round_trip = heard_ns > asked_ns ? heard_ns - asked_ns : 0;
  const std::uint64_t middle = asked_ns + round_trip / 2;
  const Exchange exchange{told_ns, static_cast<std::int64_t>(told_ns - middle), round_trip};
  if (first_.size() < remembered) first_.push_back(exchange);
  last_.push_back(exchange);
  if (last_.size() > remembered) last_.pop_front();
}

const ClockOffset::Exchange& ClockOffset::best_of(const std::deque<Exchange>& exchanges) {
  return *std::ranges::min_element(exchanges, {}, &Exchange::round_trip_ns);
}

std::int64_t ClockOffset::ahead_at(std::uint64_t theirs_ns) const {
  if (first_.empty()) return supposed_ns_;
  const Exchange &begin = best_of(first_), &end = best_of(last_);
  const auto baseline = static_cast<std::int64_t>(end.theirs_ns - begin.theirs_ns);
  if (baseline < least_drifting_ns) return (begin.round_trip_ns < end.round_trip_ns ? begin : end).ahead_ns;
  const auto since = static_cast<double>(static_cast<std::int64_t>(theirs_ns - begin.theirs_ns));
  const double drift = static_cast<double>(end.ahead_ns - begin.ahead_ns) / static_cast<double>(baseline);
  return begin.ahead_ns + static_cast<std::int64_t>(since * drift);
}

std::uint64_t ClockOffset::to_ours(std::uint64_t theirs_ns) const {
  return theirs_ns - static_cast<std::uint64_t>(ahead_at(theirs_ns));
}

std::optional<std::uint64_t> ClockOffset::error_ns() const {
  if (first_.empty()) return std::nullopt;
  return std::max(best_of(first_).round_trip_ns, best_of(last_).round_trip_ns) / 2;
}

}  // namespace lockstep::trace
