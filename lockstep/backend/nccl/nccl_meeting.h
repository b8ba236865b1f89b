// How the ranks of a group find each other for NCCL: in the store.
#pragma once

#include <string>

#include "lockstep/backend/nccl/nccl_library.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/transport/members.h"

namespace lockstep::nccl {

/// What rank 0 has made for all. `store`: of this communicator alone; what was told in it is forgotten when all have read
/// it. `gpu`: of this rank, as Gpu::uuid(). Throws Error: unsupported where two ranks have one GPU, or other versions of
/// NCCL; timeout naming ranks that do not come.
UniqueId meet(Store& store, const Members& members, const std::string& gpu, const Library& library,
              Deadline deadline);

/// Instead: this rank cannot, so that the others do not wait for it.
void decline(Store& store, const Members& members, const Error& why);

}  // namespace lockstep::nccl
