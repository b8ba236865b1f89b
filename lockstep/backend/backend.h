// What carries out a group's calls: our own engine over shared memory and sockets, later MPI or NCCL.
#pragma once

#include <memory>
#include <span>

#include "lockstep/base/signature.h"
#include "lockstep/execute/work.h"
#include "lockstep/memory/arena.h"

namespace lockstep {

/// A call that was checked: the buffers have the sizes that the signature says.
struct Request {
  Signature signature;               ///< without the buffer's place, which the backend finds out
  const std::byte* input = nullptr;  ///< all_gather, send
  std::byte* output = nullptr;       ///< all_reduce and broadcast: in place
  std::size_t output_bytes = 0;
  int peer = 0;  ///< send: the destination; receive: the source. signature.root is the sender in both
};

class Backend {
 public:
  virtual ~Backend() = default;
  /// Begins the call. Throws the group's failure if it has failed before.
  virtual std::unique_ptr<PendingWork> submit(const Request& request) = 0;
  virtual void poll() = 0;
  virtual std::uint64_t own_work_ns() const = 0;
  virtual Arena::Block allocate(std::size_t bytes) = 0;
  /// Says goodbye to the world's other ranks; for the world's group, before it goes.
  virtual void leave() = 0;
};

}  // namespace lockstep
