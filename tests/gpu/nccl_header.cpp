// Compiles if what Lockstep declares of NCCL and of CUDA's driver is what their headers say; only where those are.
#include <cuda.h>
#include <nccl.h>

#include <type_traits>

#include "lockstep/backend/nccl/nccl_library.h"
#include "lockstep/memory/cuda_driver.h"

namespace lockstep {
namespace {

using nccl::Library;

/// The same number of arguments, each as large.
template <class Ours, class Theirs>
struct Fits : std::false_type {};
template <class R, class... A, class S, class... B>
struct Fits<R (*)(A...), S (*)(B...)>
    : std::bool_constant<sizeof...(A) == sizeof...(B) && sizeof(R) == sizeof(S) &&
                         ((sizeof(A) == sizeof(B)) && ...)> {};

#define FITS(ours, theirs) static_assert(Fits<decltype(ours), decltype(&(theirs))>::value)

FITS(Library::get_unique_id, ncclGetUniqueId);
FITS(Library::init_rank, ncclCommInitRankConfig);
FITS(Library::finalize, ncclCommFinalize);
FITS(Library::destroy, ncclCommDestroy);
FITS(Library::abort, ncclCommAbort);
FITS(Library::async_error, ncclCommGetAsyncError);
FITS(Library::all_reduce, ncclAllReduce);
FITS(Library::reduce, ncclReduce);
FITS(Library::broadcast, ncclBroadcast);
FITS(Library::all_gather, ncclAllGather);
FITS(Library::reduce_scatter, ncclReduceScatter);
FITS(Library::send, ncclSend);
FITS(Library::recv, ncclRecv);
FITS(Library::group_start, ncclGroupStart);
FITS(Library::group_end, ncclGroupEnd);
FITS(Library::make_scaled_sum, ncclRedOpCreatePreMulSum);
FITS(Library::free_op, ncclRedOpDestroy);

static_assert(nccl::success == ncclSuccess && nccl::remote_error == ncclRemoteError &&
              nccl::in_progress == ncclInProgress);
static_assert(nccl::int8 == ncclInt8 && nccl::uint8 == ncclUint8 && nccl::int32 == ncclInt32 &&
              nccl::uint32 == ncclUint32 && nccl::int64 == ncclInt64 && nccl::uint64 == ncclUint64 &&
              nccl::float16 == ncclFloat16 && nccl::float32 == ncclFloat32 && nccl::float64 == ncclFloat64 &&
              nccl::bfloat16 == ncclBfloat16);
static_assert(nccl::sum == ncclSum && nccl::product == ncclProd && nccl::max == ncclMax &&
              nccl::min == ncclMin && nccl::average == ncclAvg);
static_assert(nccl::scalar_on_host == ncclScalarHostImmediate);
static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId) && sizeof(nccl::Config) <= sizeof(ncclConfig_t));
static_assert(offsetof(nccl::Config, blocking) == offsetof(ncclConfig_t, blocking) &&
              offsetof(nccl::Config, net_name) == offsetof(ncclConfig_t, netName) &&
              offsetof(nccl::Config, split_share) == offsetof(ncclConfig_t, splitShare));

using cuda::Driver;
FITS(Driver::device_count, cuDeviceGetCount);
FITS(Driver::device_name, cuDeviceGetName);
FITS(Driver::device_uuid, cuDeviceGetUuid_v2);
FITS(Driver::retain_context, cuDevicePrimaryCtxRetain);
FITS(Driver::release_context, cuDevicePrimaryCtxRelease_v2);
FITS(Driver::push_context, cuCtxPushCurrent_v2);
FITS(Driver::pop_context, cuCtxPopCurrent_v2);
FITS(Driver::priority_range, cuCtxGetStreamPriorityRange);
FITS(Driver::make_stream, cuStreamCreateWithPriority);
FITS(Driver::destroy_stream, cuStreamDestroy_v2);
FITS(Driver::make_wait, cuStreamWaitEvent);
FITS(Driver::capture_status, cuStreamIsCapturing);
FITS(Driver::exchange_capture_mode, cuThreadExchangeStreamCaptureMode);
FITS(Driver::make_event, cuEventCreate);
FITS(Driver::destroy_event, cuEventDestroy_v2);
FITS(Driver::record_event, cuEventRecord);
FITS(Driver::query_event, cuEventQuery);
FITS(Driver::allocate, cuMemAlloc_v2);
FITS(Driver::free, cuMemFree_v2);
FITS(Driver::pointer_attribute, cuPointerGetAttribute);

static_assert(cuda::success == CUDA_SUCCESS && cuda::invalid_value == CUDA_ERROR_INVALID_VALUE &&
              cuda::out_of_memory == CUDA_ERROR_OUT_OF_MEMORY &&
              cuda::invalid_handle == CUDA_ERROR_INVALID_HANDLE && cuda::not_ready == CUDA_ERROR_NOT_READY &&
              cuda::illegal_address == CUDA_ERROR_ILLEGAL_ADDRESS &&
              cuda::launch_timeout == CUDA_ERROR_LAUNCH_TIMEOUT &&
              cuda::launch_failed == CUDA_ERROR_LAUNCH_FAILED);
static_assert(cuda::stream_non_blocking == CU_STREAM_NON_BLOCKING &&
              cuda::event_default == CU_EVENT_DEFAULT &&
              cuda::attribute_device_ordinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL &&
              cuda::capture_none == CU_STREAM_CAPTURE_STATUS_NONE &&
              cuda::capture_mode_relaxed == CU_STREAM_CAPTURE_MODE_RELAXED);

}  // namespace
}  // namespace lockstep
