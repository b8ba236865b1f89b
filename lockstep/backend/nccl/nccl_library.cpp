#include "lockstep/backend/nccl/nccl_library.h"

#include <fmt/core.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep::nccl {
namespace {

std::string text_of_version(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

const Library& Library::get() {
  static const Library library;
  return library;
}

Library::Library()
    : library_(env::text("LOCKSTEP_NCCL_LIBRARY").value_or("libnccl.so.2"),
               "GPUs talk to each other by NCCL: install libnccl2 (or Python's nvidia-nccl package), or say "
               "in LOCKSTEP_NCCL_LIBRARY where libnccl.so.2 is") {
  Result (*get_version)(int* version) = nullptr;
  library_.find(get_version, "ncclGetVersion");
  (void)get_version(&version_);
  if (version_ < oldest_version) {
    throw Error(ErrorCode::unsupported, "NCCL is " + version_text() + " here; Lockstep needs " +
                                            text_of_version(oldest_version) +
                                            " or newer: LOCKSTEP_NCCL_LIBRARY may name another one");
  }
  library_.find(error_text_, "ncclGetErrorString");
  library_.find(last_error_, "ncclGetLastError");
  library_.find(get_unique_id, "ncclGetUniqueId");
  library_.find(init_rank, "ncclCommInitRankConfig");
  library_.find(finalize, "ncclCommFinalize");
  library_.find(destroy, "ncclCommDestroy");
  library_.find(abort, "ncclCommAbort");
  library_.find(async_error, "ncclCommGetAsyncError");
  library_.find(all_reduce, "ncclAllReduce");
  library_.find(reduce, "ncclReduce");
  library_.find(broadcast, "ncclBroadcast");
  library_.find(all_gather, "ncclAllGather");
  library_.find(reduce_scatter, "ncclReduceScatter");
  library_.find(send, "ncclSend");
  library_.find(recv, "ncclRecv");
  library_.find(group_start, "ncclGroupStart");
  library_.find(group_end, "ncclGroupEnd");
  library_.find(make_scaled_sum, "ncclRedOpCreatePreMulSum");
  library_.find(free_op, "ncclRedOpDestroy");
}

std::string Library::version_text() const { return text_of_version(version_); }

std::string Library::text_of(Result result, Comm comm) const {
  const std::string detail = last_error_(comm);
  return std::string(error_text_(result)) + (detail.empty() ? "" : " (" + detail + ")");
}

}  // namespace lockstep::nccl
