// What a machine can do at best, as `lockstep bench --machine` has measured it: what the figures of a run are held against.
//
//   { "format": "lockstep-machine-1",
//     "ranks": 2, "hosts": 1,
//     "memory_bytes_per_s": [ 9.1e9, 14.8e9 ],    a triad on 1, 2, ... cores of a host at once, read and written
//     "push_bytes_per_s": 11.2e9,                 each rank of a host copies into another's arena; all together
//     "link_bytes_per_s": 5.2e9,                  each rank sends to the next one; the slowest of them
//     "link_seconds": 4.1e-7 }                    half a round trip of 8 bytes on the slowest of these links
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/operation.h"

namespace lockstep::view {

struct MachineLimits {
  int ranks = 0;
  int hosts = 0;
  std::vector<double> memory_bytes_per_s = {};
  double push_bytes_per_s = 0;
  double link_bytes_per_s = 0;
  double link_seconds = 0;

  /// Throws invalid_argument that begins with `name`.
  static MachineLimits parse(const std::string& text, const std::string& name);
  /// The file that LOCKSTEP_MACHINE_FILE names; nullopt without it. Throws invalid_argument, system.
  static std::optional<MachineLimits> from_environment();
  std::string to_text() const;

  /// The fastest that `group` ranks, spread over hosts as those that measured, can do `operation`, as bus bandwidth in bytes/s: on
  /// one host what its memory allows where each input is read and each output written once, between hosts the link. What lies in
  /// caches can be faster. 0: of one rank.
  double bus_bandwidth(Operation operation, int group) const;
};

/// What a call counts for in bus bandwidth, which is this / time (as nccl-tests have it): so all numbers of ranks compare with
/// the speed of a link. `bytes` as the record has them: a rank's buffer (all_reduce, reduce, broadcast), block, or message; with
/// counts all blocks together.
double bus_bytes(Operation operation, bool has_counts, int ranks, double bytes);

}  // namespace lockstep::view
