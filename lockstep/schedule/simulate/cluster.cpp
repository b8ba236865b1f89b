#include "lockstep/schedule/simulate/cluster.h"

#include <algorithm>
#include <utility>

#include "lockstep/schedule/staging_ring.h"

namespace lockstep::schedule {

Cluster::Cluster(const Topology& topology, int ranks, Tuning tuning, std::size_t slot_bytes)
    : topology_(topology), ranks_(ranks), tuning_(std::move(tuning)) {
  if (topology_.hosts_of(ranks) > 1) {
    for (int rank = 0; rank < ranks; ++rank) where_.host_of.push_back(rank / topology_.host.ranks);
  } else {
    where_.slot_bytes = slot_bytes;
  }
}

Call Cluster::call_of(const Question& question) const {
  return {.operation = question.operation,
          .elements = question.elements,
          .ranks = ranks_,
          .buffers = question.buffers,
          .host_of = where_.host_of,
          .segment_elements = std::max<std::size_t>(1, tuning_.segment_bytes / question.element_bytes),
          .window_elements = StagingRing(tuning_.staging_bytes).piece_bytes() / question.element_bytes,
          .windows = SIZE_MAX};
}

std::vector<const AlgorithmEntry*> Cluster::candidates(const Question& question) const {
  const Call call = call_of(question);
  const bool has_window = call.window_elements >= static_cast<std::size_t>(ranks_);
  std::vector<const AlgorithmEntry*> found;
  for (const AlgorithmEntry& entry : all_algorithms()) {
    if (entry.operation != question.operation || entry.is_for_nodes) continue;
    bool can = false;
    switch (entry.requirement) {
      case Requirement::channels: can = true; break;
      case Requirement::hosts: can = !where_.is_one_host() && has_window; break;
      case Requirement::slots:
        can = where_.is_one_host() && slot_elements(call) * question.element_bytes <= where_.slot_bytes;
        break;
      case Requirement::arena: can = where_.is_one_host() && question.buffers == BufferClass::arena; break;
      case Requirement::staging: can = where_.is_one_host() && has_window; break;
      case Requirement::exchange: break;
    }
    if (can) found.push_back(&entry);
  }
  return found;
}

std::string Cluster::taken(const Question& question) const {
  return std::string(select(call_of(question), question.element_bytes, where_, tuning_).name);
}

Simulated Cluster::simulate(const AlgorithmEntry& entry, const Question& question) const {
  Call call = call_of(question);
  // As a plan has it: staging is for buffers that others cannot read.
  if (entry.requirement == Requirement::staging) call.buffers = BufferClass::private_memory;
  return schedule::simulate(entry, call, question.element_bytes, topology_);
}

}  // namespace lockstep::schedule
