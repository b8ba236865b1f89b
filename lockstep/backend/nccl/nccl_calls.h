// How a call is put into NCCL's: most of Lockstep's operations are one of them, the others several in a group.
#pragma once

#include <cstddef>
#include <optional>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/nccl/nccl_library.h"

namespace lockstep::nccl {

/// Throws Error{unsupported}, which says what to do instead, for what NCCL cannot: bits, 16-bit integers, all_to_all in place.
/// REQUIRES: require_possible_on_gpu().
void require_possible(const Request& request);

/// Whether NCCL has the operation for the type.
bool can_reduce(Dtype dtype, ReduceOp op);

/// The calls of one communicator. Thread safety: one thread at a time.
class Calls {
 public:
  /// Borrows `library`. `scratch`: a few bytes of the GPU's, for barriers.
  Calls(const Library& library, Comm comm, int rank, int ranks, cuda::Stream stream, void* scratch)
      : library_(library), comm_(comm), rank_(rank), ranks_(ranks), stream_(stream), scratch_(scratch) {}

  /// Puts them on the stream as one, so that none waits for another. Returns what NCCL does: with an error nothing
  /// may be put any more. REQUIRES: require_possible().
  Result put(std::span<const Request> requests);

 private:
  Result put(const Request& request);
  Result put_reduction(const Request& request);
  Result put_blocks(const Request& request);
  std::optional<RedOp> scaled_sum(const Request& request, DataType type, Result& result);
  Result send(const std::byte* from, std::size_t bytes, int peer) const;
  Result recv(std::byte* to, std::size_t bytes, int peer) const;

  const Library& library_;
  Comm comm_;
  int rank_, ranks_;
  cuda::Stream stream_;
  void* scratch_;
  std::vector<RedOp> made_;  // of the group that is being put
};

}  // namespace lockstep::nccl
