#include "lockstep/launch/placement.h"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/env.h"
#include "lockstep/base/words.h"

namespace lockstep::launch {
namespace {

bool each_on_the_core_of_its_number(const std::vector<std::vector<int>>& pinned) {
  for (std::size_t rank = 0; rank < pinned.size(); ++rank) {
    if (pinned[rank] != std::vector<int>{static_cast<int>(rank)}) return false;
  }
  return true;
}

std::string describe_pinning(const std::vector<std::vector<int>>& pinned) {
  if (pinned.size() == 1) return "rank 0 pinned to " + base::to_ranges(pinned.front());
  if (each_on_the_core_of_its_number(pinned)) return "rank r pinned to core r";
  std::string text = "pinned to ";
  const std::size_t shown = std::min<std::size_t>(pinned.size(), 8);
  for (std::size_t rank = 0; rank < shown; ++rank) {
    text += (rank == 0 ? "" : " | ") + base::to_ranges(pinned[rank]);
  }
  return shown < pinned.size() ? text + " | …" : text;
}

std::string why_not_pinned(const topology::Cores& cores, const PlacementRequest& request) {
  if (!request.pin) return "not pinned";
  const bool by_quota = cores.quota && *cores.quota < static_cast<int>(cores.numbers.size());
  if (by_quota) return "not pinned because of the cgroup's CPU quota";
  return "they share cores and are not pinned";
}

std::string compose_line(const topology::Cores& cores, const PlacementRequest& request,
                         const Placement& placement) {
  const bool pinned = !placement.pinned.empty();
  if (!pinned && placement.threads == 0) return {};
  std::string line = fmt::format("lockstep run: {} on {}: ", base::counted(request.ranks, "rank"),
                                 base::counted(cores.count(), "core"));
  line += pinned ? describe_pinning(placement.pinned) : why_not_pinned(cores, request);
  if (placement.threads > 0) line += fmt::format(", OMP_NUM_THREADS={}", placement.threads);
  if (placement.threads == 0) return line + ", OMP_NUM_THREADS as you set it (--no-pin to change)";
  return line +
         (pinned ? " (set OMP_NUM_THREADS or --no-pin to change)" : " (set OMP_NUM_THREADS to change)");
}

}  // namespace

Placement place(const topology::Cores& cores, const PlacementRequest& request) {
  Placement placement;
  int share = std::max(1, cores.count() / request.ranks);
  if (request.cores_per_rank) share = std::min(share, *request.cores_per_rank);
  if (!request.user_threads) placement.threads = share;
  placement.cores = request.cores_per_rank ? std::min(cores.count(), share * request.ranks) : cores.count();
  const bool room = cores.count() >= request.ranks && cores.count() == static_cast<int>(cores.numbers.size());
  if (request.pin && room) {
    placement.pinned = topology::split_cores(cores.numbers, request.ranks);
    for (auto& of_rank : placement.pinned) {
      if (request.cores_per_rank) of_rank.resize(std::min(of_rank.size(), static_cast<std::size_t>(share)));
    }
  }
  placement.line = compose_line(cores, request, placement);
  return placement;
}

PlacementRequest placement_request(int ranks, bool pin) {
  PlacementRequest request{.ranks = ranks, .pin = pin};
  request.user_threads = env::text("OMP_NUM_THREADS");
  if (const auto cores = env::integer("SLURM_CPUS_PER_TASK", 1, 1 << 16)) {
    request.cores_per_rank = static_cast<int>(*cores);
  }
  return request;
}

}  // namespace lockstep::launch
