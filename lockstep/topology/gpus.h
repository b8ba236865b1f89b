// Which GPUs a process may use, as far as that is known without their driver's library.
#pragma once

namespace lockstep::topology {

/// NVIDIA's devices under /dev, or as many as CUDA_VISIBLE_DEVICES has where that is set.
int visible_gpus();

}  // namespace lockstep::topology
