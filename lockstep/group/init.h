// Who am I? Every program begins with init(), under whatever it was started.
#pragma once

#include <optional>
#include <string>

#include "lockstep/group/group.h"

namespace lockstep {

/// What is left empty comes from the environment: of `lockstep run`, torchrun, mpirun, srun and other launchers, of TF_CONFIG, or of
/// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set by hand (docs/environment.md). With none of them the world has one rank.
struct InitOptions {
  std::optional<int> rank;
  std::optional<int> size;
  std::optional<std::string> address;  ///< where rank 0 can be reached: a host name or address
  std::optional<int> port;             ///< on which rank 0 listens; must be free there
  std::optional<GroupOptions> group;
  /// Address space of this rank's arena, which is that of all its groups; memory only as it is allocated (LOCKSTEP_ARENA_BYTES;
  /// default: this host's memory). Of the ranks of a host the first one's counts.
  std::optional<std::size_t> arena_bytes;
  /// How long to wait for all ranks to arrive (LOCKSTEP_INIT_TIMEOUT; default 5 minutes).
  std::optional<std::chrono::nanoseconds> arrival_timeout;
  /// Interface on which this rank listens for ranks of other hosts (LOCKSTEP_IFACE), by name or address; or several, as
  /// "eth0,eth1", in the same order on all hosts, which carry data side by side. Default: the one from which the address
  /// above is reached.
  std::optional<std::string> interface;
  /// In what sums and averages of f32 of 16 KiB and more cross between hosts: Dtype::bf16 or f16, half the bytes; all_reduce,
  /// reduce and reduce_scatter (LOCKSTEP_WIRE_DTYPE; default: as they are). Additions are made in f32; each host's sum is rounded
  /// once, with three hosts and more an all_reduce's result once more, and a reduce's growing sum on each host that it
  /// passes. So an all_reduce or reduce_scatter is wrong by at most u (s + |r|), u = 2^-8 (bf16) or 2^-11 (f16), where s
  /// is the sum of the hosts' sums' magnitudes and r the result; in f16 what is beyond 65504 becomes infinite. All ranks
  /// have the same bits. Rank 0's word holds for all. Not with the engine "mpi".
  std::optional<Dtype> wire_dtype;
  /// What carries collectives between hosts (LOCKSTEP_ENGINE; `lockstep run --engine`, but for mpi): "native", sockets of our own, the
  /// default, also called "gloo" and "tcp"; or "mpi", the MPI whose launcher started the job, or with which the program
  /// is linked. Inside a host it is shared memory in any case. "nccl" is "native" for main memory, and throws
  /// Error{unsupported} where GPUs' memory (MemoryPlace) would find no GPU or no NCCL. The same on all ranks.
  std::optional<std::string> engine;
  /// Lets several hosts work without a secret (LOCKSTEP_INSECURE=1). Anyone on the network can then join.
  std::optional<bool> insecure;
};

/// Joins the job and returns the group of all its ranks, when all have arrived. Where the environment says
/// who this process is, it is in one world at a time: while any Group of it is left, init() returns that world again. When
/// the last one is gone, or after shutdown(), init() makes the job's next world, once all ranks have come to that; ranks
/// count their worlds, and the groups of the second one begin with "world#2".
/// Where ranks may die and come back (`lockstep run --tolerate`, --restart, --min-np), a world is made of those who live: after
/// a failure init() again gives the next one, without the dead, and with those that were started again. Its ranks are in the
/// order in which they came to the job; group.world_rank() is what the launcher and messages call them.
/// Throws Error: aborted (this process is out of such a job: it did not answer); invalid_argument (half an environment, a rank outside the world, wrong secret: what was
/// found and what to set), mismatch (the job's ranks are in a later world), timeout (which ranks never arrived),
/// system (the port is taken, no memory).
Group init(const InitOptions& options = {});

/// How often the ranks of this job have been started before, after a failure (`lockstep run --max-restarts`, torchrun's too):
/// above 0 a program goes on from its checkpoint. The same on all ranks. Throws Error{invalid_argument} where the launcher's
/// variable (TORCHELASTIC_RESTART_COUNT) is no number.
int restarts();

/// How often this rank was started again by itself after a failure (`lockstep run --restart`, --min-np): 0 at first.
int incarnation();

/// The task that `lockstep run --role` has given this rank, or TF_CONFIG of a cluster with parameter servers ("ps", "chief",
/// "worker"); "default" without roles. Throws Error{invalid_argument} where TF_CONFIG cannot be read.
std::string role();

/// Whether this process is in a job whose ranks may die and come back: `lockstep run --tolerate`, --restart, --min-np.
bool ranks_may_change();

/// In such a job: whether some have since the
/// world of init() was made, so that shutdown() and init() would make another one. Other ranks may know it a little later.
/// Cost: a load.
bool world_has_changed();

/// Leaves the world of init(), for who cannot let its groups go out of scope: they are closed here, all of them, and their
/// calls throw Error{aborted}, those under way too; other ranks that still call see this one as gone. init() may be called again
/// afterwards. Waits for an init() in another thread. Nothing happens where there is no world, or where InitOptions said the
/// rank (such a world is left with its last Group).
void shutdown();

/// Whether a world that init() has returned is there: from then until its last Group is gone, or shutdown().
bool is_initialized();

/// How many worlds this process has come to by init(): 0 before the first one.
int worlds();

}  // namespace lockstep
