// Calls on GPUs' memory: which engine carries them, and how it comes to a group that has none yet.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "lockstep/backend/backend.h"
#include "lockstep/execute/work.h"
#include "lockstep/group/impl.h"

namespace lockstep {

/// Begins them as one call, or as few as there can be. REQUIRES: all in one place, which is a GPU's memory. The group's first call on a GPU connects its
/// ranks there, which all of them have to come to: the first of one rank meets the first of the others, its second GPU their
/// second. Throws Error as GpuGroup::submit() and connecting its engine do.
Work submit_on_gpu(Group::Impl& impl, std::span<const Request> requests);

/// Whether submit_on_gpu() works for this GPU of this rank; all ranks get the same. Collective at the first time for a GPU, as a
/// first call there. `why`, if given: what is missing. Throws Error: timeout and peer_lost naming ranks that do not come.
bool can_call_on_gpu(const Group& group, int device, std::string* why = nullptr);

/// Whether all ranks of the group, of which there are others, share this GPU. REQUIRES: can_call_on_gpu().
bool shares_gpu(const Group& group, int device);

/// How many messages from one rank to another may be on their way there; one more has the host wait. REQUIRES: can_call_on_gpu().
std::size_t messages_on_gpu(const Group& group, int device);

/// Rank 0 logs, once for each reason, that what lies on GPUs goes through main memory.
void say_through_main_memory(const Group& group, const std::string& why);

/// Memory of the rank's GPU that calls take as it is, where the group's ranks on this host share one: `memory` is where it begins, until the
/// result is gone. Null elsewhere: any memory will do. Throws Error: system (the GPU has not so much), timeout (other ranks do not
/// map it), and as can_call_on_gpu(). Not collective.
std::shared_ptr<void> allocate_on_gpu(const Group& group, int device, std::size_t bytes, void** memory);

/// Whether CUDA's driver can be loaded here, without which there is no memory of a GPU for calls. Loads it.
bool has_gpu_driver();

/// What all engines have.
bool can_reduce_on_gpu(Dtype dtype, ReduceOp op);

/// Of the engine nccl, when a rank begins. Throws Error{unsupported} unless there are a driver for GPUs, and an NCCL.
void require_nccl();

}  // namespace lockstep
