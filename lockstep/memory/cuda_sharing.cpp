#include "lockstep/memory/cuda_sharing.h"

namespace lockstep::cuda {

const SharingDriver& SharingDriver::get() {
  static const SharingDriver driver;
  return driver;
}

SharingDriver::SharingDriver()
    : library_("libcuda.so.1", "it is part of NVIDIA's driver, without which there is no GPU to use") {
  library_.find(load_module, "cuModuleLoadData");
  library_.find(unload_module, "cuModuleUnload");
  library_.find(find_function, "cuModuleGetFunction");
  library_.find(launch, "cuLaunchKernel");
  library_.find(tell_memory, "cuIpcGetMemHandle");
  library_.find(open_memory, "cuIpcOpenMemHandle_v2");
  library_.find(close_memory, "cuIpcCloseMemHandle");
  library_.find(register_host, "cuMemHostRegister_v2");
  library_.find(unregister_host, "cuMemHostUnregister");
  library_.find(host_address, "cuMemHostGetDevicePointer_v2");
  library_.find(wait_for_value, "cuStreamWaitValue32_v2");
  library_.find(copy, "cuMemcpyDtoDAsync_v2");
  library_.find(copy_in, "cuMemcpyHtoDAsync_v2");
  library_.find(fill_bytes, "cuMemsetD8Async");
  library_.find(attribute, "cuDeviceGetAttribute");
}

}  // namespace lockstep::cuda
