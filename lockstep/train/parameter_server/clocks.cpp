#include "lockstep/train/parameter_server/clocks.h"

#include <algorithm>

namespace lockstep::ps {

void Clocks::set_living(const std::vector<Life>& workers) {
  std::erase_if(workers_,
                [&](const auto& item) { return std::ranges::find(workers, item.first) == workers.end(); });
  const std::uint64_t begin = is_synchronous() ? round_ : slowest();
  for (const Life& worker : workers) workers_.try_emplace(worker, Worker{.clock = begin});
}

void Clocks::rest(const Life& worker) {
  if (const auto found = workers_.find(worker); found != workers_.end()) found->second.rests = true;
}

void Clocks::work(const Life& worker) {
  const auto found = workers_.find(worker);
  if (found == workers_.end() || !found->second.rests) return;
  // While it rested the others went on, and its next read sees that.
  found->second.clock = std::max(found->second.clock, is_synchronous() ? round_ : slowest());
  found->second.rests = false;
}

void Clocks::leave(const Life& worker) {
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  found->second.has_left = true;
  had_leavers_ = true;
}

void Clocks::drop(const Life& worker) {
  if (const auto found = workers_.find(worker); found != workers_.end()) found->second.has_left = true;
}

bool Clocks::may_read(const Life& worker) const {
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return !is_synchronous() || !is_round_begun_;
  if (is_synchronous()) return !found->second.has_pushed;
  return !staleness_ || found->second.clock <= slowest() + static_cast<std::uint64_t>(*staleness_);
}

bool Clocks::is_working(const Life& worker) const {
  const auto found = workers_.find(worker);
  return found != workers_.end() && found->second.counts();
}

void Clocks::push(const Life& worker) {
  is_round_begun_ = true;
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  furthest_ = std::max(furthest_, ++found->second.clock);
  found->second.has_pushed = true;
}

bool Clocks::is_round_over() const {
  return is_round_begun_ && std::ranges::all_of(workers_, [](const auto& item) {
           return !item.second.counts() || item.second.has_pushed;
         });
}

void Clocks::update() {
  ++round_;
  is_round_begun_ = false;
  for (auto& [life, worker] : workers_) worker.has_pushed = false;
}

bool Clocks::has_workers() const {
  return std::ranges::any_of(workers_, [](const auto& item) { return !item.second.has_left; });
}

std::size_t Clocks::working() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(workers_, [](const auto& item) { return item.second.counts(); }));
}

std::uint64_t Clocks::lead() const {
  std::uint64_t first = slowest();
  for (const auto& [life, worker] : workers_) {
    if (worker.counts()) first = std::max(first, worker.clock);
  }
  return first - slowest();
}

std::uint64_t Clocks::slowest() const {
  std::optional<std::uint64_t> least;
  for (const auto& [life, worker] : workers_) {
    if (worker.counts()) least = std::min(least.value_or(worker.clock), worker.clock);
  }
  return least.value_or(is_synchronous() ? round_ : furthest_);
}

}  // namespace lockstep::ps
