#include "lockstep/memory/cuda_driver.h"

#include "lockstep/base/error.h"

namespace lockstep::cuda {
const Driver& Driver::get() {
  static const Driver driver;
  return driver;
}

Driver::Driver()
    : library_("libcuda.so.1", "it is part of NVIDIA's driver, without which there is no GPU to use") {
  Result (*initialize)(unsigned flags) = nullptr;
  library_.find(initialize, "cuInit");
  library_.find(error_name_, "cuGetErrorName");
  library_.find(error_text_, "cuGetErrorString");
  library_.find(device_count, "cuDeviceGetCount");
  library_.find(device_name, "cuDeviceGetName");
  library_.find(device_uuid, "cuDeviceGetUuid_v2");
  library_.find(retain_context, "cuDevicePrimaryCtxRetain");
  library_.find(release_context, "cuDevicePrimaryCtxRelease_v2");
  library_.find(push_context, "cuCtxPushCurrent_v2");
  library_.find(pop_context, "cuCtxPopCurrent_v2");
  library_.find(priority_range, "cuCtxGetStreamPriorityRange");
  library_.find(make_stream, "cuStreamCreateWithPriority");
  library_.find(destroy_stream, "cuStreamDestroy_v2");
  library_.find(make_wait, "cuStreamWaitEvent");
  library_.find(capture_status, "cuStreamIsCapturing");
  library_.find(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  library_.find(make_event, "cuEventCreate");
  library_.find(destroy_event, "cuEventDestroy_v2");
  library_.find(record_event, "cuEventRecord");
  library_.find(query_event, "cuEventQuery");
  library_.find(elapsed_ms, "cuEventElapsedTime");
  library_.find(allocate, "cuMemAlloc_v2");
  library_.find(free, "cuMemFree_v2");
  library_.find(copy_down, "cuMemcpyDtoHAsync_v2");
  library_.find(copy_up, "cuMemcpyHtoDAsync_v2");
  library_.find(synchronize, "cuStreamSynchronize");
  library_.find(pointer_attribute, "cuPointerGetAttribute");
  if (const Result result = initialize(0); result != success) {
    throw Error(ErrorCode::unsupported,
                "NVIDIA's driver does not begin: " + text_of(result) +
                    "; see what nvidia-smi says, and whether this container was given a GPU");
  }
}

std::string Driver::text_of(Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  (void)error_name_(result, &name);
  (void)error_text_(result, &text);
  return std::string(text != nullptr ? text : "an error that it has no text for") + " (" +
         (name != nullptr ? name : std::to_string(result).c_str()) + ")";
}

void Driver::check(Result result, const std::string& doing) const {
  if (result == success) return;
  const bool is_of_a_kernel =
      result == illegal_address || result == launch_timeout || result == launch_failed;
  throw Error(
      ErrorCode::system,
      doing + ": CUDA says: " + text_of(result) +
          (is_of_a_kernel
               ? "; a kernel that the program ran before this went wrong, and nothing can be done on this "
                 "GPU "
                 "any more: run it with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer, to see which"
               : ""));
}

}  // namespace lockstep::cuda
