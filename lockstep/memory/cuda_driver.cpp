#include "lockstep/memory/cuda_driver.h"

#include "lockstep/base/error.h"

namespace lockstep::cuda {
namespace {

template <class Function>
void find(const LoadedLibrary& library, Function& function, const char* name) {
  function = library.function<Function>(name);
}

}  // namespace

const Driver& Driver::get() {
  static const Driver driver;
  return driver;
}

Driver::Driver()
    : library_("libcuda.so.1", "it is part of NVIDIA's driver, without which there is no GPU to use") {
  Result (*initialize)(unsigned flags) = nullptr;
  find(library_, initialize, "cuInit");
  find(library_, error_name_, "cuGetErrorName");
  find(library_, error_text_, "cuGetErrorString");
  find(library_, device_count, "cuDeviceGetCount");
  find(library_, device_name, "cuDeviceGetName");
  find(library_, device_uuid, "cuDeviceGetUuid_v2");
  find(library_, retain_context, "cuDevicePrimaryCtxRetain");
  find(library_, release_context, "cuDevicePrimaryCtxRelease_v2");
  find(library_, push_context, "cuCtxPushCurrent_v2");
  find(library_, pop_context, "cuCtxPopCurrent_v2");
  find(library_, priority_range, "cuCtxGetStreamPriorityRange");
  find(library_, make_stream, "cuStreamCreateWithPriority");
  find(library_, destroy_stream, "cuStreamDestroy_v2");
  find(library_, make_wait, "cuStreamWaitEvent");
  find(library_, capture_status, "cuStreamIsCapturing");
  find(library_, exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  find(library_, make_event, "cuEventCreate");
  find(library_, destroy_event, "cuEventDestroy_v2");
  find(library_, record_event, "cuEventRecord");
  find(library_, query_event, "cuEventQuery");
  find(library_, elapsed_ms, "cuEventElapsedTime");
  find(library_, allocate, "cuMemAlloc_v2");
  find(library_, free, "cuMemFree_v2");
  find(library_, pointer_attribute, "cuPointerGetAttribute");
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
