#include "lockstep/backend/nccl/nccl_library.h"

#include <fmt/core.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep::nccl {
namespace {

template <class Function>
void find(const LoadedLibrary& library, Function& function, const char* name) {
  function = library.function<Function>(name);
}

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
  find(library_, get_version, "ncclGetVersion");
  (void)get_version(&version_);
  if (version_ < oldest_version) {
    throw Error(ErrorCode::unsupported, "NCCL is " + version_text() + " here; Lockstep needs " +
                                            text_of_version(oldest_version) +
                                            " or newer: LOCKSTEP_NCCL_LIBRARY may name another one");
  }
  find(library_, error_text_, "ncclGetErrorString");
  find(library_, last_error_, "ncclGetLastError");
  find(library_, get_unique_id, "ncclGetUniqueId");
  find(library_, init_rank, "ncclCommInitRankConfig");
  find(library_, finalize, "ncclCommFinalize");
  find(library_, destroy, "ncclCommDestroy");
  find(library_, abort, "ncclCommAbort");
  find(library_, async_error, "ncclCommGetAsyncError");
  find(library_, all_reduce, "ncclAllReduce");
  find(library_, reduce, "ncclReduce");
  find(library_, broadcast, "ncclBroadcast");
  find(library_, all_gather, "ncclAllGather");
  find(library_, reduce_scatter, "ncclReduceScatter");
  find(library_, send, "ncclSend");
  find(library_, recv, "ncclRecv");
  find(library_, group_start, "ncclGroupStart");
  find(library_, group_end, "ncclGroupEnd");
  find(library_, make_scaled_sum, "ncclRedOpCreatePreMulSum");
  find(library_, free_op, "ncclRedOpDestroy");
}

std::string Library::version_text() const { return text_of_version(version_); }

std::string Library::text_of(Result result, Comm comm) const {
  const std::string detail = last_error_(comm);
  return std::string(error_text_(result)) + (detail.empty() ? "" : " (" + detail + ")");
}

}  // namespace lockstep::nccl
