#include "lockstep/group/identity.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/mpi_family.h"
#include "lockstep/group/engine_choice.h"
#include "lockstep/group/interface_address.h"
#include "lockstep/group/launchers.h"
#include "lockstep/group/noticeboard.h"
#include "lockstep/group/tf_config.h"
#include "lockstep/rendezvous/file_board.h"
#include "lockstep/rendezvous/pmi1.h"
#include "lockstep/rendezvous/pmi2.h"
#include "lockstep/rendezvous/pmix.h"

namespace lockstep {
namespace {

constexpr int highest_descriptor = 1 << 20;
constexpr const char* by_tf_config = "TF_CONFIG";

std::string user() { return std::to_string(::getuid()); }

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

/// Rank and size, which come together or not at all.
void find_place(Identity& identity, const InitOptions& options) {
  auto rank = env::integer("RANK", 0, largest_world - 1);
  auto size = env::integer("WORLD_SIZE", 1, largest_world);
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

/// What the launcher handed down to this process is not for those that it starts.
std::optional<int> for_this_process(std::optional<std::int64_t> descriptor) {
  if (!descriptor) return std::nullopt;
  const int fd = static_cast<int>(*descriptor);
  (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);  // where it is not open, whoever reads it says so
  return fd;
}

std::optional<int> secret_descriptor() {
  return for_this_process(env::integer("LOCKSTEP_SECRET_FD", 0, highest_descriptor));
}

std::optional<int> control_descriptor() {
  return for_this_process(env::integer("LOCKSTEP_CONTROL_FD", 0, highest_descriptor));
}

void find_trust(Identity& identity, const InitOptions& options) {
  if (const auto fd = secret_descriptor()) {
    identity.trust.secret = Secret::from_inherited_fd(*fd);
  } else if (const auto path = env::text("LOCKSTEP_SECRET_FILE")) {
    identity.trust.secret = Secret::from_file(*path);
  }
  identity.trust.tcp_without_secret =
      options.insecure.value_or(env::flag("LOCKSTEP_INSECURE").value_or(false));
}

/// A unix socket, whose other end the kernel vouches for.
void meet_in_host(Identity& identity, const std::string& restart = {}) {
  identity.hosts_store = identity.rank == 0;
  identity.socket_prefix = "lockstep-" + user() + "-" + identity.job + restart;
  identity.store = Endpoint::unix_abstract(identity.socket_prefix + "-store");
}

/// The meeting place that rank 0 opens at an address and port. On one host without a secret it is in the host.
void meet_at(Identity& identity, const std::string& address, int port, const std::string& restart = {}) {
  meet_in_host(identity, restart);
  if (is_loopback(address) && !identity.trust.secret && !identity.trust.tcp_without_secret) return;
  identity.store = Endpoint::tcp(address, static_cast<std::uint16_t>(port));
  if (!identity.trust.secret && !identity.trust.tcp_without_secret) {
    throw_invalid_argument(
        "ranks that meet at " + identity.store.to_string() +
        " need a secret: put the same 32 random bytes into a file of mode 0600 on every host and set "
        "LOCKSTEP_SECRET_FILE to it. If all ranks run on this host, " +
        (identity.launcher == by_tf_config ? "call it 127.0.0.1 in TF_CONFIG. "
                                           : "set MASTER_ADDR=127.0.0.1. ") +
        "LOCKSTEP_INSECURE=1 lets anyone on the network join");
  }
}

void meet_at_port(Identity& identity, const std::string& address, std::int64_t port) {
  identity.job = "port-" + std::to_string(port);
  meet_at(identity, address, static_cast<int>(port));
}

void from_lockstep_run(Identity& identity, const std::string& store) {
  identity.launcher = "lockstep run";
  identity.served_by = StoreHost::launcher;
  identity.store = Endpoint::parse(store);
  identity.job = env::text("LOCKSTEP_JOB").value_or("job");
  identity.socket_prefix = "lockstep-" + user() + "-" + identity.job;
  identity.control_fd = control_descriptor();
  const auto incarnation = env::integer("LOCKSTEP_INCARNATION", 0, std::numeric_limits<int>::max());
  if (!incarnation) return;
  identity.incarnation = static_cast<int>(*incarnation);
  identity.local_size = static_cast<int>(env::integer("LOCAL_WORLD_SIZE", 1, largest_world).value_or(1));
  identity.place_in_page =
      static_cast<int>(env::integer("LOCAL_RANK", 0, identity.local_size - 1).value_or(0));
}

/// torchrun's own store holds MASTER_PORT: on one host a unix socket named after the run is the meeting
/// place, between hosts a port beside it.
void from_torchrun(Identity& identity, const std::string& run) {
  identity.launcher = "torchrun";
  const auto address = env::text("MASTER_ADDR");
  const auto port = env::integer("MASTER_PORT", 1, 65534);
  if (!address || !port) throw_invalid_argument("torchrun's environment has no MASTER_ADDR or MASTER_PORT");
  // How often it was restarted differs between hosts where one of them failed.
  const std::string restart = env::text("TORCHELASTIC_RESTART_COUNT").value_or("0");
  identity.job = "torchrun-" + run.substr(0, 32) + "-" + std::to_string(*port);
  const auto local_size = env::integer("LOCAL_WORLD_SIZE", 1, largest_world);
  const bool one_host = local_size && *local_size == identity.size;
  const auto own_port = env::integer("LOCKSTEP_PORT", 1, 65535).value_or(*port + 1);
  meet_at(identity, one_host ? "127.0.0.1" : *address, static_cast<int>(own_port), "-" + restart);
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
  meet_at_port(identity, *address, *port);
}

/// TF_CONFIG's processes meet where rank 0's own server of TensorFlow would listen.
void from_tf_config(Identity& identity, const TfConfig& config) {
  identity.launcher = by_tf_config;
  meet_at_port(identity, config.host, config.port);
}

std::string name_of(const std::string& job) { return fmt::format("launched-{:016x}", fnv1a_64(job)); }

/// The noticeboard that the user has named, or that of the launcher, if it has one; null else.
std::shared_ptr<ProcessManager> board_of(const LaunchedRank& launched, Identity& identity,
                                         const InitOptions& options) {
  const auto folder = env::text("LOCKSTEP_MEETING_DIR");
  if (folder && !launched.job.empty()) return std::make_shared<FileBoard>(*folder, name_of(launched.job));
  if (!launched.pmi_fd) {
    if (!Pmix::is_offered()) return nullptr;
    // Open MPI begins PMIx itself, and does not bear that others did so before, even where they have left it.
    if (choose_engine(options.engine, "InitOptions::engine") == EngineChoice::mpi)
      identity.mpi = MpiLibrary::open(identity.rank, identity.size, arrival_timeout(options));
    return std::make_shared<Pmix>();
  }
  if (launched.pmi2_job.empty()) return std::make_shared<Pmi1>(*launched.pmi_fd);
  return std::make_shared<Pmi2>(*launched.pmi_fd, launched.pmi2_job, mpi::has_begun());
}

/// Of a launcher whose noticeboard is read once in a process: the job's name there, and where it meets.
struct Told {
  std::mutex mutex;
  std::string launcher, job;  ///< "": not yet
  std::optional<MeetingPlace> place;

  static Told& of_process() {
    static Told told;
    return told;
  }
};

void use(const MeetingPlace& place, Identity& identity) {
  identity.store = place.store;
  identity.listener = place.listener;
  identity.trust.secret = place.secret;
}

void meet_by(ProcessManager& board, Identity& identity, const InitOptions& options, Deadline deadline) {
  std::optional<std::string> address;
  if (identity.rank == 0) {
    const auto chosen = options.interface ? options.interface : env::text("LOCKSTEP_IFACE");
    address = chosen ? addresses_of_interfaces(*chosen).front() : address_for_other_hosts();
  }
  Told::of_process().place = meet_on(board, address, identity.trust.secret, deadline);
  use(*Told::of_process().place, identity);
}

/// Ranks of one host meet at a socket with the name of their job, which the kernel guards; others where rank 0 says to be on
/// their launcher's noticeboard, or else where the user says.
void from_launcher(Identity& identity, const LaunchedRank& launched, const InitOptions& options) {
  identity.launcher = launched.launcher;
  const auto address = env::text("MASTER_ADDR");
  const auto port = env::integer("MASTER_PORT", 1, 65535);
  if (address && port) return meet_at_port(identity, *address, *port);
  const bool needs_board = !launched.is_on_one_host() || launched.job.empty();
  Told& told = Told::of_process();
  const std::lock_guard lock(told.mutex);
  if (needs_board && !told.job.empty() && told.launcher == launched.launcher) {
    identity.job = name_of(told.job);
    meet_in_host(identity);
    if (told.place) use(*told.place, identity);
    return;
  }
  const auto board = needs_board ? board_of(launched, identity, options) : nullptr;
  const Deadline deadline = Deadline::after(arrival_timeout(options));
  const std::string job = launched.job.empty() && board ? board->job(deadline) : launched.job;
  identity.job = name_of(job);
  if (board) told.launcher = launched.launcher;
  if (!launched.is_on_one_host() && board) {
    meet_in_host(identity);
    identity.board = board;
    meet_by(*board, identity, options, deadline);
    told.job = job;
    return;
  }
  if (!launched.is_on_one_host() || job.empty()) {
    throw_invalid_argument(fmt::format(
        "this process is rank {} of {} started by {}, on several hosts or of a launcher that "
        "does not say, and whose noticeboard (PMI) is not there. One of three things tells all ranks where "
        "to "
        "meet: under srun --mpi=pmi2 or --mpi=pmix; LOCKSTEP_MEETING_DIR, a folder that all hosts share; or "
        "MASTER_ADDR, the host of rank 0, MASTER_PORT, a free port there, and LOCKSTEP_SECRET_FILE, a file "
        "of mode "
        "0600 with the same 32 random bytes on every host",
        identity.rank, identity.size, launched.launcher));
  }
  meet_in_host(identity);
  if (board) told.job = job;
}

/// What `options`, or RANK and WORLD_SIZE, say.
Identity of_options_or_environment(const InitOptions& options) {
  Identity identity;
  find_place(identity, options);
  const bool has_views = !options.rank && !options.size && env::text("LOCKSTEP_INCARNATION");
  if (identity.size == 1 && !has_views) {
    (void)secret_descriptor();  // neither is needed
    (void)control_descriptor();
    return identity;
  }
  find_trust(identity, options);
  const bool explicitly = options.rank || options.size;
  const auto store = explicitly ? std::nullopt : env::text("LOCKSTEP_STORE");
  const auto torch_run = explicitly ? std::nullopt : env::text("TORCHELASTIC_RUN_ID");
  if (store) {
    from_lockstep_run(identity, *store);
  } else if (torch_run) {
    from_torchrun(identity, *torch_run);
  } else {
    from_hand(identity, options);
  }
  return identity;
}

/// What others say where those say nothing.
Identity of_others(const InitOptions& options) {
  if (env::text("LOCKSTEP_STORE"))
    throw_invalid_argument(
        "LOCKSTEP_STORE is set but RANK and WORLD_SIZE are not; `lockstep run` sets all three");
  Identity identity;
  identity.launcher = "nobody";
  const auto place = [&](int rank, int size) {
    identity.rank = rank;
    identity.size = size;
    if (size > 1) find_trust(identity, options);
    return size > 1;
  };
  if (const auto text = env::text("TF_CONFIG")) {
    const TfConfig config = parse_tf_config(*text);
    if (place(config.rank, config.size)) from_tf_config(identity, config);
  } else if (const auto launched = find_launched_rank()) {
    if (place(launched->rank, launched->size)) from_launcher(identity, *launched, options);
  }
  return identity;
}

}  // namespace

std::chrono::nanoseconds arrival_timeout(const InitOptions& options) {
  return options.arrival_timeout.value_or(
      env::duration("LOCKSTEP_INIT_TIMEOUT").value_or(std::chrono::minutes(5)));
}

Identity find_identity(const InitOptions& options) {
  const bool is_said = options.rank || options.size || env::text("RANK") || env::text("WORLD_SIZE");
  Identity identity = is_said ? of_options_or_environment(options) : of_others(options);
  if (identity.size == 1 && !identity.incarnation) return identity;
  if (const auto chosen = options.interface ? options.interface : env::text("LOCKSTEP_IFACE"))
    identity.listen_addresses = addresses_of_interfaces(*chosen);
  return identity;
}

}  // namespace lockstep
