// A group's ranks meet before its first call on a GPU: each says which GPU it has and which engines it could take, and all choose
// alike.
#pragma once

#include <cstddef>
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
  std::string no_arena;  ///< why it can do without NCCL in neither way; empty: it can
  /// What the first rank says of these holds for all, as in gpu_hosts::Sizes.
  std::size_t sliced_from = 0, piece_bytes = 0;
};

enum class GpuEngineKind {
  nccl,          ///< each rank has a GPU of its own
  device_arena,  ///< all share one
  gpu_hosts,     ///< those of each host share one
};
struct GpuChoice {
  GpuEngineKind kind;
  std::size_t sliced_from = 0, piece_bytes = 0;  ///< of gpu_hosts
};

/// One rank with nobody to meet.
GpuChoice choose_engine(const GpuOffer& alone);

/// Collective. Throws Error: unsupported, on all ranks, where one declines or has what does not fit; timeout and peer_lost naming
/// ranks that do not come.
GpuChoice meet_on_gpus(Store& store, const Members& members, const GpuOffer& offer, Deadline deadline);

/// Of ranks that have chosen gpu_hosts, and have connected with those of their hosts; or could not, since `refusal`. Collective. Throws
/// Error: unsupported, on all ranks, with the first one's refusal; as meet_on_gpus().
void agree_on_hosts(Store& store, const Members& members, const std::string& refusal, Deadline deadline);

/// In place of meet_on_gpus(): this rank cannot, and the others get `why`.
void decline_gpus(Store& store, const Members& members, const Error& why);

}  // namespace lockstep
