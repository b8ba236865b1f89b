#include "lockstep/launch/agents/candidates.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>

#include "lockstep/base/words.h"
#include "lockstep/group/interface_address.h"

namespace lockstep::launch::agents {
namespace {

/// Nothing is known to be wrong with it.
bool is_well(const Candidate& candidate) { return candidate.problem.empty(); }

bool reaches(const Candidate& candidate, std::size_t address) {
  const auto& problems = candidate.probed->problems;
  return address < problems.size() && problems[address].empty();
}

}  // namespace

bool are_one_machine(const Candidate& one, const Candidate& other) {
  return one.hello->machine == other.hello->machine && one.hello->network == other.hello->network;
}

void merge_machines(Candidates& candidates) {
  Candidates merged;
  for (Candidate& candidate : candidates) {
    const auto same = std::ranges::find_if(
        merged, [&](const Candidate& other) { return are_one_machine(candidate, other); });
    if (same == merged.end() || candidate.connection->has_come()) {
      merged.push_back(std::move(candidate));
    } else {
      same->host.slots += candidate.host.slots;
      candidate.connection->close();
    }
  }
  candidates = std::move(merged);
}

std::vector<std::string> addresses_to_try(const Candidates& candidates, const std::string& name) {
  const Candidate& first = candidates.front();
  if (std::ranges::all_of(candidates, [&](const Candidate& one) { return are_one_machine(one, first); }))
    return {"127.0.0.1"};
  std::vector<std::string> addresses = first.hello->addresses;
  const std::vector<std::string> named = addresses_of(name);
  const auto is_named = [&](const std::string& address) {
    return std::ranges::find(named, address) != named.end();
  };
  // Each that nobody answers at takes time: where there is IPv4, IPv6 has to be wished for.
  if (!std::ranges::all_of(addresses, is_v6))
    std::erase_if(addresses,
                  [&](const std::string& address) { return is_v6(address) && !is_named(address); });
  std::stable_partition(addresses.begin(), addresses.end(), is_named);
  return addresses;
}

std::optional<std::string> address_reached(Candidates& candidates,
                                           const std::vector<std::string>& addresses) {
  const auto others = std::span(candidates).subspan(1);
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (std::ranges::all_of(others, [i](const Candidate& other) { return reaches(other, i); }))
      return addresses[i];
  }
  Candidate& first = candidates.front();
  if (addresses.empty()) {
    first.problem = "has no network interface with an address";
    return std::nullopt;
  }
  for (Candidate& other : others) {
    std::string tried;
    for (const std::string& problem : other.probed->problems) tried += (tried.empty() ? "" : "; ") + problem;
    if (std::ranges::none_of(other.probed->problems, &std::string::empty))
      other.problem = "does not reach " + first.host.name + ": " + tried;
  }
  if (!have_problems(candidates))
    first.problem = "has no address that all other hosts reach; each reaches another of " +
                    base::counted(static_cast<int>(addresses.size()), "address", "addresses");
  return std::nullopt;
}

bool have_problems(const Candidates& candidates) { return !std::ranges::all_of(candidates, is_well); }

std::string table_of_problems(const Candidates& candidates) {
  std::size_t widest = 0, failed = 0;
  for (const Candidate& candidate : candidates) {
    if (is_well(candidate)) continue;
    ++failed;
    widest = std::max(widest, candidate.host.name.size());
  }
  std::string table = candidates.size() == 1
                          ? std::string("the host cannot take part:")
                          : fmt::format("{} of {} cannot take part:", failed,
                                        base::counted(static_cast<int>(candidates.size()), "host"));
  for (const Candidate& candidate : candidates) {
    if (!is_well(candidate))
      table += fmt::format("\n  {:{}}  {}", candidate.host.name, widest, candidate.problem);
  }
  return table;
}

int exit_code_of(const Candidates& candidates) {
  return std::ranges::find_if_not(candidates, is_well)->exit_code;
}

}  // namespace lockstep::launch::agents
