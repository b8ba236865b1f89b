#include "lockstep/topology/devices.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "lockstep/base/system_file.h"
#include "lockstep/topology/nvlinks.h"

namespace lockstep::topology {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view nvidia = "0x10de";
constexpr const char* legend =
    "  X     itself\n"
    "  SYS   PCIe, and the link between NUMA nodes\n"
    "  NODE  PCIe, and the link between host bridges of one NUMA node\n"
    "  PHB   PCIe, and a host bridge, which is the CPU as a rule\n"
    "  PXB   several PCIe bridges, no host bridge\n"
    "  PIX   one PCIe bridge at most\n"
    "  NV#   # NVLinks\n";

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored))
    found.push_back(entry->path());
  std::ranges::sort(found);
  return found;
}

/// "0000:3b:00.0".
bool is_bus_id(const std::string& name) {
  const std::string form = "xxxx:xx:xx.x";
  return name.size() == form.size() &&
         std::equal(name.begin(), name.end(), form.begin(), [](unsigned char c, char f) {
           return f == 'x' ? std::isxdigit(c) != 0 : static_cast<char>(c) == f;
         });
}

/// From the host bridge to the last PCI device on the way to `device`; empty where it is not on PCI.
std::vector<std::string> path_of(const fs::path& device) {
  std::vector<std::string> path;
  std::error_code error;
  for (const fs::path& part : fs::canonical(device, error)) {
    const std::string name = part.string();
    if (path.empty() ? name.starts_with("pci") && name.find(':') != std::string::npos : is_bus_id(name))
      path.push_back(name);
  }
  return path.size() < 2 ? std::vector<std::string>() : path;
}

std::optional<Device> device_at(const fs::path& link, Device::Kind kind, std::string name,
                                const fs::path& bus) {
  Device device{.kind = kind, .name = std::move(name), .path = path_of(link)};
  if (device.path.empty()) return std::nullopt;
  device.bus_id = device.path.back();
  const std::string node = base::system_line(bus / device.bus_id / "numa_node");
  (void)std::from_chars(node.data(), node.data() + node.size(), device.memory_node);
  device.cores = base::system_line(bus / device.bus_id / "local_cpulist");
  return device;
}

bool is_gpu(const fs::path& device) {
  const std::string kind =
      base::system_line(device / "class");  // 0x0300xx: display, 0x0302xx: one without a display
  return base::system_line(device / "vendor") == nvidia &&
         (kind.starts_with("0x0300") || kind.starts_with("0x0302"));
}

}  // namespace

std::vector<Device> find_devices(const std::string& sys) {
  const fs::path bus = fs::path(sys) / "bus" / "pci" / "devices";
  std::vector<Device> devices;
  const auto has = [&](const std::string& bus_id) {
    return std::ranges::find(devices, bus_id, &Device::bus_id) != devices.end();
  };
  for (const fs::path& entry : entries(bus)) {
    if (!is_gpu(entry)) continue;
    const auto number = static_cast<int>(devices.size());
    auto gpu = device_at(entry, Device::Kind::gpu, fmt::format("GPU{}", number), bus);
    if (!gpu) continue;
    gpu->number = number;
    devices.push_back(std::move(*gpu));
  }
  find_nvlinks(devices);
  for (const char* kind : {"infiniband", "net"}) {
    for (const fs::path& entry : entries(fs::path(sys) / "class" / kind)) {
      auto card = device_at(entry / "device", Device::Kind::network, entry.filename(), bus);
      if (card && !has(card->bus_id)) devices.push_back(std::move(*card));
    }
  }
  return devices;
}

std::string connection(const Device& one, const Device& other) {
  if (one.bus_id == other.bus_id) return "X";
  if (one.kind == Device::Kind::gpu && other.kind == Device::Kind::gpu) {
    const auto number = static_cast<std::size_t>(other.number);
    if (number < one.nvlinks.size() && one.nvlinks[number] > 0)
      return fmt::format("NV{}", one.nvlinks[number]);
  }
  const auto [end_of_one, end_of_other] = std::ranges::mismatch(one.path, other.path);
  const auto common = end_of_one - one.path.begin();
  if (common == 0) return one.memory_node >= 0 && one.memory_node == other.memory_node ? "NODE" : "SYS";
  if (common == 1) return "PHB";
  // What is left of each path: the ports below the bridge that both have, and the device.
  const auto longest = std::max(one.path.end() - end_of_one, other.path.end() - end_of_other);
  return longest <= 2 ? "PIX" : "PXB";
}

std::string connection_table(const std::vector<Device>& devices) {
  std::size_t widest = 5;
  for (const Device& device : devices) widest = std::max(widest, device.name.size());
  std::string text = fmt::format("{:{}}", "", widest);
  for (const Device& device : devices) text += fmt::format("  {:{}}", device.name, widest);
  text += "  cores             NUMA node\n";
  for (const Device& one : devices) {
    text += fmt::format("{:{}}", one.name, widest);
    for (const Device& other : devices) text += fmt::format("  {:{}}", connection(one, other), widest);
    text += fmt::format("  {:16}  {}\n", one.cores.empty() ? "?" : one.cores,
                        one.memory_node < 0 ? "-" : std::to_string(one.memory_node));
  }
  return text + legend;
}

}  // namespace lockstep::topology
