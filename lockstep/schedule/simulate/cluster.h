// Some ranks on the hosts of a topology, and what they would call: which algorithms can do it, which one a job would take,
// and how long each needs.
#pragma once

#include <string>
#include <vector>

#include "lockstep/schedule/select.h"
#include "lockstep/schedule/simulate/simulate.h"

namespace lockstep::schedule {

class Cluster {
 public:
  /// Hosts are filled one after another. `slot_bytes`: of a slot in their memory.
  Cluster(const Topology& topology, int ranks, Tuning tuning, std::size_t slot_bytes);

  struct Question {
    Operation operation = Operation::all_reduce;
    std::size_t elements = 0;  ///< as in Call
    std::size_t element_bytes = 4;
    BufferClass buffers = BufferClass::arena;
  };

  /// All but what an engine carries out, and what is for nodes of memory.
  std::vector<const AlgorithmEntry*> candidates(const Question& question) const;
  /// The name of the one that select() takes.
  std::string taken(const Question& question) const;
  /// REQUIRES: one of the candidates. Throws as schedule::simulate() does.
  Simulated simulate(const AlgorithmEntry& entry, const Question& question) const;

 private:
  Call call_of(const Question& question) const;

  Topology topology_;
  int ranks_;
  Tuning tuning_;
  Neighbourhood where_;
};

}  // namespace lockstep::schedule
