#include "lockstep/topology/devices.h"

#include <fmt/core.h>

#include "examine.h"
#include "lockstep/backend/device_arena/kernel_image.h"
#include "lockstep/backend/nccl/nccl_library.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system_file.h"
#include "lockstep/topology/gpus.h"

namespace doctor {

namespace {

/// By what calls on GPUs' memory would be carried; says what stands in the way where there are GPUs.
void examine_nccl(Report& report, int gpus) {
  try {
    const auto& nccl = lockstep::nccl::Library::get();
    report.fact("NCCL", nccl.version_text(), "nccl", nccl.version_text());
  } catch (const lockstep::Error& error) {
    report.fact("NCCL", std::string("none: ") + error.what(), "nccl", nullptr);
    if (gpus == 0) return;
    report.problem(
        {.weight = 25,
         .what = "tensors on GPUs go through main memory, since there is no NCCL",
         .remedy = "install libnccl2 (2.18 or newer), or say in LOCKSTEP_NCCL_LIBRARY where it is"});
  }
}

/// By what ranks that share a GPU would reduce there.
void examine_kernels(Report& report, int gpus) {
  const bool has_kernels = !lockstep::device_arena::kernel_image().empty();
  report.fact("GPU kernels",
              has_kernels ? "built in" : "none: this Lockstep was built where there is no nvcc",
              "gpu_kernels", has_kernels);
  if (gpus == 0 || has_kernels) return;
  report.problem({.weight = 15,
                  .what = "tensors of ranks that share a GPU go through main memory, since this Lockstep has "
                          "no kernels for GPUs",
                  .remedy = "build it where CUDA's nvcc is on the PATH"});
}

}  // namespace

void examine_devices(Report& report) {
  using lockstep::topology::Device;
  const auto devices = lockstep::topology::find_devices();
  report.section("GPUs and network cards", "devices");
  int gpus = 0;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Device& device : devices) {
    gpus += device.kind == Device::Kind::gpu ? 1 : 0;
    nlohmann::ordered_json connections;
    for (const Device& other : devices)
      connections[other.name] = lockstep::topology::connection(device, other);
    list.push_back({{"name", device.name},
                    {"bus_id", device.bus_id},
                    {"cores", device.cores},
                    {"memory_node", device.memory_node},
                    {"connections", connections}});
  }
  const std::string driver = lockstep::base::system_line("/proc/driver/nvidia/version");
  report.fact("GPUs", fmt::format("{}, of which {} can be used", gpus, lockstep::topology::visible_gpus()),
              "gpus", {{"on_the_bus", gpus}, {"usable", lockstep::topology::visible_gpus()}});
  report.fact("driver", driver.empty() ? "none" : driver, "driver", driver);
  examine_nccl(report, gpus);
  examine_kernels(report, gpus);
  if (devices.empty()) {
    report.fact("connections", "there is neither a GPU nor a network card on PCI", "list", list);
  } else {
    report.lines(lockstep::topology::connection_table(devices), "list", list);
  }
  if (gpus > 0 && driver.empty()) {
    report.problem({.weight = 45,
                    .what = fmt::format("there are {} GPUs on the bus, but no driver", gpus),
                    .remedy = "install NVIDIA's driver, or in a container start it with --gpus all"});
  }
}

}  // namespace doctor
