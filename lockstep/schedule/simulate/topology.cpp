#include "lockstep/schedule/simulate/topology.h"

#include <fmt/core.h>

#include "lockstep/base/file.h"
#include "lockstep/base/json_fields.h"
#include "lockstep/base/quote.h"

namespace lockstep::schedule {
namespace {

using nlohmann::json;

constexpr const char* topology_format = "lockstep-topology-1";
constexpr double gigabytes = 1e9, gigabits = 1e9 / 8, microseconds = 1e-6;
constexpr double least_rate = 1e-6, most_rate = 1e6;  // in either unit
constexpr double most_microseconds = 1e9;

/// Of what stands in the file and may be missing there.
void read_real(const json& object, const char* name, double least, double most, double unit, double& value) {
  if (object.contains(name)) value = base::real_in(object, name, least, most) * unit;
}

Topology::Host host_of(const json& object) {
  base::require_known(object, {"ranks", "copy_gb_per_s", "reduce_gb_per_s", "memory_gb_per_s", "stage_us"});
  Topology::Host host;
  host.ranks = static_cast<int>(base::number_in(object, "ranks", 1, most_simulated_ranks));
  read_real(object, "copy_gb_per_s", least_rate, most_rate, gigabytes, host.copy_rate);
  read_real(object, "reduce_gb_per_s", least_rate, most_rate, gigabytes, host.reduce_rate);
  read_real(object, "memory_gb_per_s", least_rate, most_rate, gigabytes, host.memory_rate);
  read_real(object, "stage_us", 0, most_microseconds, microseconds, host.stage);
  return host;
}

Topology::Kind kind_of(const json& object) {
  const std::string name = base::text_in(object, "kind");
  if (name == "two-level") return Topology::Kind::two_level;
  if (name == "fat-tree") return Topology::Kind::fat_tree;
  throw_invalid_argument("\"kind\" must be two-level or fat-tree, not " + base::quote(name));
}

Topology::Network network_of(const json& object) {
  Topology::Network network;
  network.kind = kind_of(object);
  if (network.kind == Topology::Kind::two_level) {
    base::require_known(object, {"kind", "gbit_per_s", "receive_gbit_per_s", "overhead", "latency_us",
                                 "message_us", "socket_gb_per_s"});
  } else {
    base::require_known(
        object, {"kind", "gbit_per_s", "receive_gbit_per_s", "overhead", "latency_us", "message_us",
                 "socket_gb_per_s", "hosts_per_leaf", "uplinks", "uplink_gbit_per_s", "uplink_latency_us"});
  }
  double overhead = 0.06;  // of TCP in frames of 1,500 bytes
  read_real(object, "overhead", 0, 0.9, 1, overhead);
  const double payload = gigabits * (1 - overhead);
  network.send_rate = base::real_in(object, "gbit_per_s", least_rate, most_rate) * payload;
  network.receive_rate = network.send_rate;
  read_real(object, "receive_gbit_per_s", least_rate, most_rate, payload, network.receive_rate);
  network.latency = base::real_in(object, "latency_us", 0, most_microseconds) * microseconds;
  network.message = base::real_in(object, "message_us", 0, most_microseconds) * microseconds;
  read_real(object, "socket_gb_per_s", least_rate, most_rate, gigabytes, network.socket_rate);
  if (network.kind == Topology::Kind::two_level) return network;
  network.hosts_per_leaf =
      static_cast<int>(base::number_in(object, "hosts_per_leaf", 1, most_simulated_ranks));
  network.uplinks = static_cast<int>(base::number_in(object, "uplinks", 1, most_simulated_ranks));
  network.uplink_rate = base::real_in(object, "uplink_gbit_per_s", least_rate, most_rate) * payload;
  network.uplink_latency = base::real_in(object, "uplink_latency_us", 0, most_microseconds) * microseconds;
  return network;
}

}  // namespace

Topology Topology::parse(const std::string& text, const std::string& name) {
  return base::within(name, [&] {
    const json value =
        base::parse_json(text, most_topology_bytes, "docs/simulate.md shows what it should be");
    base::require_format(value, topology_format);
    base::require_known(value, {"format", "host", "network"});
    Topology topology;
    base::within("\"host\"", [&] { topology.host = host_of(base::member(value, "host")); });
    base::within("\"network\"", [&] { topology.network = network_of(base::member(value, "network")); });
    return topology;
  });
}

Topology Topology::read(const std::string& path) {
  const InputFile file(path, "topology file");
  if (file.size() > most_topology_bytes) {
    throw_invalid_argument(fmt::format("topology file {} has {} bytes; one has at most {}", path, file.size(),
                                       most_topology_bytes));
  }
  return parse(file.text(), "topology file " + path);
}

}  // namespace lockstep::schedule
