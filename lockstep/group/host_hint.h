// What a rank tells the others of where it is, in words: by which they know who shares memory, cores and a node of that memory.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/per_rank.h"
#include "lockstep/group/engine_choice.h"

namespace lockstep {

struct HostHint {
  std::string machine, place;  ///< a kernel, and a network namespace of it, "/" and a launcher there
  int memory_node = -1;
  std::vector<int> cores = {};
  std::string engine = {};
  int in_page = -1;  ///< its place in its launcher's control page; -1: as ranks come, host by host

  std::string host() const { return machine + "-" + place; }
  /// Its ranks reach each other at 127.0.0.1.
  std::string network() const { return machine + "-" + place.substr(0, place.find('/')); }

  /// This process's, in words.
  static std::string own(EngineChoice engine, int in_page = -1);
  /// Throws Error{invalid_argument}, naming `rank`, for other words than own() has.
  static HostHint parse(int rank, const std::string& text);
  /// Of each rank of the world. Throws Error{invalid_argument} also where engines differ.
  static PerRank<HostHint> parse_all(const std::vector<std::string>& texts);
};

/// Ranks for each core that those of the machine of number `rank` may use. Several hosts, as containers and network namespaces
/// are, may be one machine.
double ranks_per_core_here(const PerRank<HostHint>& hints, int rank);

}  // namespace lockstep
