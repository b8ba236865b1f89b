// A group's ranks meet before its first call on a GPU: each says which GPU it has and which engines it could take, and all choose
// alike.
#pragma once

#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/transport/members.h"

namespace lockstep {

/// What a rank says of itself.
struct GpuOffer {
  std::string gpu;       ///< Gpu::uuid()
  std::string nccl;      ///< its version; empty: none, see no_nccl
  std::string no_nccl;   ///< why there is none
  std::string no_arena;  ///< why it cannot take part in a device arena; empty: it can
};

enum class GpuEngineKind {
  nccl,          ///< each rank has a GPU of its own
  device_arena,  ///< all share one
};

/// One rank with nobody to meet.
GpuEngineKind choose_engine(const GpuOffer& alone);

/// Collective. Throws Error: unsupported, on all ranks, where one declines or has what does not fit; timeout and peer_lost naming
/// ranks that do not come.
GpuEngineKind meet_on_gpus(Store& store, const Members& members, const GpuOffer& offer, Deadline deadline);

/// In place of it: this rank cannot, and the others get `why`.
void decline_gpus(Store& store, const Members& members, const Error& why);

}  // namespace lockstep
