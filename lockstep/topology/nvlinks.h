// NVLinks between GPUs, which only the driver's library (NVML) knows.
#pragma once

#include <vector>

#include "lockstep/topology/devices.h"

namespace lockstep::topology {

/// Sets `nvlinks` of those of `gpus` that NVML finds. Leaves them as they are where there is no libnvidia-ml.so.1, or it refuses.
void find_nvlinks(std::vector<Device>& gpus);

}  // namespace lockstep::topology
