#include "lockstep/group/identity.h"

#include <unistd.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/group/interface_address.h"

namespace lockstep {
namespace {

constexpr int most_ranks = 1 << 16;

std::string user() { return std::to_string(::getuid()); }

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

/// Rank and size, which come together or not at all.
void find_place(Identity& identity, const InitOptions& options) {
  auto rank = env::integer("RANK", -most_ranks, most_ranks);
  auto size = env::integer("WORLD_SIZE", -most_ranks, most_ranks);
  if (options.rank) rank = *options.rank;
  if (options.size) size = *options.size;
  if (!rank || !size) {
    throw_invalid_argument(
        std::string(rank ? "RANK is set but WORLD_SIZE is not" : "WORLD_SIZE is set but RANK is not") +
        "; set both, or neither for a world of one rank, or start ranks with `lockstep run -np N`");
  }
  identity.rank = static_cast<int>(*rank);
  identity.size = static_cast<int>(*size);
  if (identity.size < 1)
    throw_invalid_argument("WORLD_SIZE is " + std::to_string(*size) + "; it must be at least 1");
  if (identity.rank < 0 || identity.rank >= identity.size) {
    throw_invalid_argument("RANK is " + std::to_string(identity.rank) +
                           ", but a world of WORLD_SIZE=" + std::to_string(identity.size) +
                           " has the ranks 0 to " + std::to_string(identity.size - 1));
  }
}

void find_trust(Identity& identity, const InitOptions& options) {
  if (const auto fd = env::integer("LOCKSTEP_SECRET_FD", 0, 1 << 20)) {
    identity.trust.secret = Secret::from_inherited_fd(static_cast<int>(*fd));
  } else if (const auto path = env::text("LOCKSTEP_SECRET_FILE")) {
    identity.trust.secret = Secret::from_file(*path);
  }
  identity.trust.tcp_without_secret =
      options.insecure.value_or(env::flag("LOCKSTEP_INSECURE").value_or(false));
}

/// The meeting place that rank 0 opens at an address and port. On one host without a secret it is a unix
/// socket, whose other end the kernel vouches for.
void meet_at(Identity& identity, const std::string& address, int port, const std::string& name) {
  identity.hosts_store = identity.rank == 0;
  identity.job = "lockstep-" + user() + "-" + name;
  const bool one_host = is_loopback(address) && !identity.trust.secret && !identity.trust.tcp_without_secret;
  if (one_host) {
    identity.store = Endpoint::unix_abstract(identity.job + "-store");
    return;
  }
  identity.store = Endpoint::tcp(address, static_cast<std::uint16_t>(port));
  if (!identity.trust.secret && !identity.trust.tcp_without_secret) {
    throw_invalid_argument(
        "ranks that meet at " + identity.store.to_string() +
        " need a secret: put the same 32 random bytes into a file of mode 0600 on every host and set "
        "LOCKSTEP_SECRET_FILE to it. If all ranks run on this host, set MASTER_ADDR=127.0.0.1. "
        "LOCKSTEP_INSECURE=1 lets anyone on the network join");
  }
}

void from_lockstep_run(Identity& identity, const std::string& store) {
  identity.launcher = "lockstep run";
  identity.served_by = StoreHost::launcher;
  identity.store = Endpoint::parse(store);
  identity.job = "lockstep-" + user() + "-" + env::text("LOCKSTEP_JOB").value_or("job");
  if (const auto fd = env::integer("LOCKSTEP_CONTROL_FD", 0, 1 << 20))
    identity.control_fd = static_cast<int>(*fd);
}

/// torchrun's own store holds MASTER_PORT: on one host a unix socket named after the run is the meeting
/// place, between hosts a port beside it.
void from_torchrun(Identity& identity, const std::string& run) {
  identity.launcher = "torchrun";
  const auto address = env::text("MASTER_ADDR");
  const auto port = env::integer("MASTER_PORT", 1, 65534);
  if (!address || !port) throw_invalid_argument("torchrun's environment has no MASTER_ADDR or MASTER_PORT");
  const std::string restart = env::text("TORCHELASTIC_RESTART_COUNT").value_or("0");
  const std::string name = "torchrun-" + run.substr(0, 32) + "-" + std::to_string(*port) + "-" + restart;
  const auto local_size = env::integer("LOCAL_WORLD_SIZE", 1, most_ranks);
  const bool one_host = local_size && *local_size == identity.size;
  const auto own_port = env::integer("LOCKSTEP_PORT", 1, 65535).value_or(*port + 1);
  meet_at(identity, one_host ? "127.0.0.1" : *address, static_cast<int>(own_port), name);
}

void from_hand(Identity& identity, const InitOptions& options) {
  identity.launcher = options.rank ? "InitOptions" : "the environment";
  const auto address = options.address ? options.address : env::text("MASTER_ADDR");
  std::optional<std::int64_t> port = env::integer("MASTER_PORT", 1, 65535);
  if (options.port) port = *options.port;
  if (!address || !port || *port < 1 || *port > 65535) {
    throw_invalid_argument(
        "a world of " + std::to_string(identity.size) +
        " ranks needs a place to meet: set MASTER_ADDR to the host of rank 0 (127.0.0.1 where all "
        "are on one host) and MASTER_PORT to a free port there, 1 to 65535, or start ranks with "
        "`lockstep run -np N`");
  }
  meet_at(identity, *address, static_cast<int>(*port), "port-" + std::to_string(*port));
}

/// A launcher whose variables this version does not read would otherwise start N worlds of one rank.
void refuse_unknown_launchers() {
  const auto refuse = [](const char* launcher, const char* variable) {
    throw Error(ErrorCode::unsupported, std::string("this process is one of several started by ") + launcher +
                                            " (" + variable +
                                            " is set), whose environment this version does not read; start "
                                            "ranks with `lockstep run -np N`, or "
                                            "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each");
  };
  if (env::integer("OMPI_COMM_WORLD_SIZE", 1, most_ranks).value_or(1) > 1)
    refuse("Open MPI", "OMPI_COMM_WORLD_SIZE");
  if (env::integer("PMI_SIZE", 1, most_ranks).value_or(1) > 1) refuse("an MPI launcher", "PMI_SIZE");
  if (env::integer("SLURM_STEP_NUM_TASKS", 1, most_ranks).value_or(1) > 1 && env::text("SLURM_PROCID")) {
    refuse("srun", "SLURM_STEP_NUM_TASKS");
  }
}

}  // namespace

Identity find_identity(const InitOptions& options) {
  Identity identity;
  const bool explicitly = options.rank || options.size;
  const bool has_any = explicitly || env::text("RANK") || env::text("WORLD_SIZE");
  const auto store = explicitly ? std::nullopt : env::text("LOCKSTEP_STORE");
  const auto torch_run = explicitly ? std::nullopt : env::text("TORCHELASTIC_RUN_ID");
  if (!has_any) {
    if (store)
      throw_invalid_argument(
          "LOCKSTEP_STORE is set but RANK and WORLD_SIZE are not; `lockstep run` sets all three");
    refuse_unknown_launchers();
    identity.launcher = "nobody";
    return identity;
  }
  find_place(identity, options);
  if (identity.size == 1) return identity;
  find_trust(identity, options);
  if (store) {
    from_lockstep_run(identity, *store);
  } else if (torch_run) {
    from_torchrun(identity, *torch_run);
  } else {
    from_hand(identity, options);
  }
  if (const auto chosen = options.interface ? options.interface : env::text("LOCKSTEP_IFACE")) {
    identity.listen_address = address_of_interface(*chosen);
  }
  return identity;
}

}  // namespace lockstep
