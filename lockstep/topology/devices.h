// How GPUs, network cards and cores of this host are connected: what `nvidia-smi topo -m` shows, from what the kernel says of
// its PCI bus, and of NVLinks from the driver's library where there is one.
#pragma once

#include <string>
#include <vector>

namespace lockstep::topology {

struct Device {
  enum class Kind { gpu, network } kind = Kind::gpu;
  int number = 0;           ///< of a GPU, in the order of the bus
  std::string name = {};    ///< "GPU0", "mlx5_0", "eth0"
  std::string bus_id = {};  ///< "0000:3b:00.0"
  /// From the host bridge to the device: "pci0000:3a", "0000:3a:00.0", "0000:3b:00.0".
  std::vector<std::string> path = {};
  int memory_node = -1;           ///< NUMA; -1: the system does not say
  std::string cores = {};         ///< near it, "0-15"
  std::vector<int> nvlinks = {};  ///< of a GPU: how many to each GPU, by its number; empty: not known
};

/// NVIDIA's GPUs, and network cards (by InfiniBand's name where they have one). `sys`: where sysfs is.
std::vector<Device> find_devices(const std::string& sys = "/sys");

/// What a message between two devices passes, in nvidia-smi's words: "X" itself, "NV4" four NVLinks, "PIX" one PCIe bridge at
/// most, "PXB" several, "PHB" a host bridge, "NODE" the link between host bridges of one NUMA node, "SYS" that between nodes.
std::string connection(const Device& one, const Device& other);

/// A table of all of them with its legend; lines.
std::string connection_table(const std::vector<Device>& devices);

}  // namespace lockstep::topology
