// What a simulated cluster is made of: hosts alike, each with some ranks and a port of the network, and switches between
// them. A topology file, in JSON (docs/simulate.md has every member):
//
//   {"format": "lockstep-topology-1",
//    "host":    {"ranks": 4, "copy_gb_per_s": 8, "reduce_gb_per_s": 6, "memory_gb_per_s": 40, "stage_us": 0.5},
//    "network": {"kind": "fat-tree", "gbit_per_s": 100, "latency_us": 12, "message_us": 2, "socket_gb_per_s": 4,
//                "hosts_per_leaf": 32, "uplinks": 16, "uplink_gbit_per_s": 100, "uplink_latency_us": 1}}
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::schedule {

/// Rates are bytes a second, times are seconds.
struct Topology {
  struct Host {
    int ranks = 1;
    double copy_rate = 8e9;     ///< of one rank that copies, by what it has copied
    double reduce_rate = 6e9;   ///< of one rank that adds two buffers, by what it has written
    double memory_rate = 40e9;  ///< of all ranks of the host, by what they read and write
    double stage = 0.5e-6;      ///< from a rank's arrival to when another one of the host has seen it
  };

  /// two_level: one switch that joins all ports at their full rate. fat_tree: a leaf switch for each
  /// `hosts_per_leaf` hosts, each with `uplinks` cables to the spine; what goes to one host takes one of them,
  /// whichever host sends it.
  enum class Kind { two_level, fat_tree };

  struct Network {
    Kind kind = Kind::two_level;
    double send_rate = 0;      ///< of a host's port, of payload
    double receive_rate = 0;   ///< the other way
    double latency = 0;        ///< from a host to another one under the same switch, of a message of no bytes
    double message = 0;        ///< that a rank is busy with a message, when it sends and when it receives
    double socket_rate = 4e9;  ///< of one rank that hands bytes to the network, or takes them
    int hosts_per_leaf = 0;
    int uplinks = 0;
    double uplink_rate = 0;
    double uplink_latency = 0;  ///< more, where a message goes through the spine
  };

  Host host;
  Network network;

  int hosts_of(int ranks) const { return (ranks + host.ranks - 1) / host.ranks; }

  /// Throws Error{invalid_argument}: what is wrong, where in the text, and beginning with `name`.
  static Topology parse(const std::string& text, const std::string& name);
  /// Throws Error{system, invalid_argument}.
  static Topology read(const std::string& path);
};

inline constexpr std::size_t most_topology_bytes = std::size_t{1} << 20;
/// The most ranks, of hosts or altogether.
inline constexpr int most_simulated_ranks = 1 << 16;

}  // namespace lockstep::schedule
