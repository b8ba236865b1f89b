#include "lockstep/topology/nvlinks.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <optional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/loaded_library.h"

namespace lockstep::topology {
namespace {

// Of nvml.h, which is not needed to build: https://docs.nvidia.com/deploy/nvml-api
using Handle = struct nvmlDevice*;
constexpr int success = 0;
constexpr unsigned enabled = 1;
constexpr unsigned most_links = 18;
struct PciInfo {
  std::array<char, 16> bus_id_legacy;
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  std::array<char, 32> bus_id;
};

class Nvml {
 public:
  Nvml()
      : library_("libnvidia-ml.so.1", "install NVIDIA's driver"),
        shutdown_(library_.function<int (*)()>("nvmlShutdown")),
        find_(library_.function<int (*)(const char*, Handle*)>("nvmlDeviceGetHandleByPciBusId_v2")),
        state_(library_.function<int (*)(Handle, unsigned, unsigned*)>("nvmlDeviceGetNvLinkState")),
        remote_(
            library_.function<int (*)(Handle, unsigned, PciInfo*)>("nvmlDeviceGetNvLinkRemotePciInfo_v2")) {
    is_usable_ = library_.function<int (*)()>("nvmlInit_v2")() == success;
  }
  ~Nvml() {
    if (is_usable_) (void)shutdown_();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Where the links of a GPU that are up lead; nullopt: it is not known here.
  std::optional<std::vector<PciInfo>> links_of(const std::string& bus_id) const {
    Handle gpu = nullptr;
    if (!is_usable_ || find_(bus_id.c_str(), &gpu) != success) return std::nullopt;
    std::vector<PciInfo> found;
    for (unsigned link = 0; link < most_links; ++link) {
      unsigned state = 0;
      PciInfo other{};
      if (state_(gpu, link, &state) == success && state == enabled && remote_(gpu, link, &other) == success)
        found.push_back(other);
    }
    return found;
  }

 private:
  LoadedLibrary library_;
  int (*shutdown_)();
  int (*find_)(const char*, Handle*);
  int (*state_)(Handle, unsigned, unsigned*);
  int (*remote_)(Handle, unsigned, PciInfo*);
  bool is_usable_ = false;
};

/// "00000000:3B:00.0" as sysfs has it.
std::string bus_id_of(const PciInfo& info) {
  std::array<char, 16> text{};
  (void)std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.0", info.domain & 0xffffU, info.bus & 0xffU,
                      info.device & 0xffU);
  return text.data();
}

}  // namespace

void find_nvlinks(std::vector<Device>& gpus) try {
  if (gpus.empty()) return;
  const Nvml nvml;
  std::vector<int> to_switches(gpus.size());  // which connect all GPUs that have links to them
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const auto links = nvml.links_of(gpus[i].bus_id);
    if (!links) continue;
    gpus[i].nvlinks.assign(gpus.size(), 0);
    for (const PciInfo& link : *links) {
      const auto other = std::ranges::find(gpus, bus_id_of(link), &Device::bus_id);
      ++(other == gpus.end() ? to_switches[i]
                             : gpus[i].nvlinks[static_cast<std::size_t>(other - gpus.begin())]);
    }
  }
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (std::size_t j = 0; j < gpus[i].nvlinks.size(); ++j)
      if (i != j) gpus[i].nvlinks[j] += std::min(to_switches[i], to_switches[j]);
  }
} catch (const Error&) {
}

}  // namespace lockstep::topology
