// What was decided about named operations becomes a collective of their group: where their buffers are, how
// large their results, and what a rank contributes that has joined.
#pragma once

#include <cstddef>
#include <future>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/engine/named_gpu.h"
#include "lockstep/engine/named_operation.h"
#include "lockstep/engine/negotiation.h"
#include "lockstep/group/group.h"

namespace lockstep {

struct RunningCall {
  /// The work is over, and well: what went through main memory goes to its GPU. Throws Error{system}.
  void put_back() const;

  std::vector<std::shared_ptr<NamedOperation>> operations;  ///< null where this rank has joined
  std::vector<std::vector<std::byte>> own_buffers;          ///< in place of theirs
  struct Copy {
    std::span<std::byte> here, there;
    std::shared_ptr<NamedGpu> gpu;
  };
  std::vector<Copy> copies;          ///< of what is on a GPU
  std::future<Work> beginning = {};  ///< on a GPU: another thread begins it
  Work work;
};

/// Begins the collective of decisions to start, which are fused where there are several. `operations`: this
/// rank's, by decision. `gpu`: that all of them are on, where the call is, too; null: it is in main memory, on all ranks. The same
/// decisions on all ranks of `group`. Throws as collectives do.
RunningCall start_call(const Group& group, std::span<const Decision> decisions,
                       std::vector<std::shared_ptr<NamedOperation>> operations,
                       const std::shared_ptr<NamedGpu>& gpu);

}  // namespace lockstep
