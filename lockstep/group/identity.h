// Who this process is and where its job meets, as its launcher's environment or the caller's options say it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/backend/mpi/mpi_library.h"
#include "lockstep/base/proof.h"
#include "lockstep/base/socket.h"
#include "lockstep/group/init.h"
#include "lockstep/rendezvous/process_manager.h"

namespace lockstep {

/// Who serves the job's store.
enum class StoreHost { launcher, rank_0 };

struct Identity {
  int rank = 0;
  int size = 1;
  std::string launcher;  ///< for messages: "lockstep run", "torchrun", "the environment", "InitOptions"
  Endpoint store;        ///< where the job's store is
  StoreHost served_by = StoreHost::rank_0;
  bool hosts_store = false;  ///< this rank serves it
  std::shared_ptr<Listener> listener =
      {};                         ///< there, where it had to be told to others before; null: to be opened
  std::string job;                ///< its name, the same on all hosts: what a proof is about (base/proof.h)
  std::string socket_prefix;      ///< begins the names of its sockets on this host: user, job, restart
  std::optional<int> control_fd;  ///< the launcher's control page
  Trust trust;
  std::shared_ptr<MpiLibrary> mpi = {};  ///< where it had to be begun before; null: to be opened
  /// Where rank 0 has said how to meet; kept until all ranks have arrived.
  std::shared_ptr<ProcessManager> board = {};
  /// In a job whose ranks may die and come back: how often this one was started again before. nullopt: another kind of job.
  std::optional<int> incarnation = {};
  int place_in_page = -1;  ///< in such a job: its number in the control page
  int local_size = 1;      ///< likewise: ranks of this host
  /// For ranks of other hosts; none: that from which the store is reached.
  std::vector<std::string> listen_addresses = {};

  /// The rank that serves the store; -1: the launcher does.
  int store_host() const { return served_by == StoreHost::launcher ? -1 : 0; }
};

/// How long ranks wait for each other: `options`, LOCKSTEP_INIT_TIMEOUT, or 5 minutes. Throws invalid_argument.
std::chrono::nanoseconds arrival_timeout(const InitOptions& options);

/// Who says it, in this order: `options`; RANK and WORLD_SIZE, which `lockstep run`, torchrun or the user has set;
/// TF_CONFIG; a launcher's own variables (launchers.h). With none of them the world has one rank.
/// Throws invalid_argument for half an environment, a rank outside the world, values that make no sense, and
/// ranks of a launcher who are not told where to meet; each says what was found and what to set.
Identity find_identity(const InitOptions& options);

}  // namespace lockstep
