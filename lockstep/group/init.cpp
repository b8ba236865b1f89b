// init(): identity, meeting, who shares a host, control page, world group.
#include "lockstep/group/init.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <sstream>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/quote.h"
#include "lockstep/base/system_file.h"
#include "lockstep/group/engine_choice.h"
#include "lockstep/group/identity.h"
#include "lockstep/group/impl.h"
#include "lockstep/group/joining.h"
#include "lockstep/group/meet.h"
#include "lockstep/group/place_in_job.h"
#include "lockstep/group/told_error.h"
#include "lockstep/rendezvous/store_server.h"
#include "lockstep/rendezvous/tcp_store.h"
#include "lockstep/topology/topology.h"
#include "lockstep/transport/ring/hand_over.h"

namespace lockstep {
namespace {

using base::quote;

/// What a rank tells the others of where it is, in words. The first two are a guess which ranks share memory: the same
/// boot of a kernel, and the same network namespace and, where several launchers run there, the same one of them.
/// Handing descriptors over then proves it. Then the node of that memory that it runs beside, its cores, and the
/// engine that it was told to take.
std::string host_hint(EngineChoice engine) {
  const std::string boot = base::system_line("/proc/sys/kernel/random/boot_id");
  struct stat status {};
  if (::stat("/proc/self/ns/net", &status) != 0) throw_system("/proc/self/ns/net");
  return (boot.empty() ? "unknown" : boot) + " " + std::to_string(status.st_ino) +
         env::text("LOCKSTEP_NODE").value_or("") + " " + std::to_string(topology::memory_node()) + " " +
         topology::core_list() + " " + to_string(engine);
}

struct HostHint {
  std::string machine, place;
  int memory_node = -1;
  std::vector<int> cores;
  std::string engine;
  std::string host() const { return machine + "-" + place; }
};

HostHint hint_of(int rank, const std::string& text) {
  std::istringstream words(text);
  HostHint hint;
  std::string cores;
  if (words >> hint.machine >> hint.place >> hint.memory_node >> cores >> hint.engine) {
    if (auto known = topology::cores_of_list(cores)) {
      hint.cores = std::move(*known);
      return hint;
    }
  }
  throw_invalid_argument("rank " + std::to_string(rank) + " says " + quote(text) +
                         " of its host, in other words than this rank; do all ranks have the same Lockstep?");
}

/// Ranks for each core that those of this one's machine may use. Several hosts, as containers and network namespaces
/// are, may be one machine.
double ranks_per_core_here(const PerRank<HostHint>& hints, int rank) {
  std::set<int> cores;
  int ranks = 0;
  for (const HostHint& hint : hints) {
    if (hint.machine != hints[rank].machine) continue;
    ++ranks;
    cores.insert(hint.cores.begin(), hint.cores.end());
  }
  return static_cast<double>(ranks) / static_cast<double>(cores.size());
}

std::shared_ptr<StoreServer> serve_store(const Identity& identity) try {
  return std::make_shared<StoreServer>(
      identity.listener ? std::move(*identity.listener) : Listener::bind(identity.store),
      StoreServerOptions{.trust = identity.trust, .job = identity.job});
} catch (const Error& error) {
  if (error.code() != ErrorCode::system || identity.store.kind == Endpoint::Kind::tcp) throw;
  throw Error(ErrorCode::system,
              "rank 0 cannot open its job's meeting place (" + std::string(error.what()) +
                  "): is there another rank 0, or another job with this MASTER_PORT, on this host?");
}

constexpr std::chrono::nanoseconds shortest_answer_time = std::chrono::milliseconds(250);

/// `server`: on the rank that serves it.
JobStore open_store(const Identity& identity, std::shared_ptr<StoreServer> server, int number,
                    Deadline deadline) {
  try {
    TcpStoreOptions store_options{.trust = identity.trust, .job = identity.job, .rank = identity.rank};
    // A store that is silent when the deadline has passed must not hold anybody up as long again.
    const std::chrono::nanoseconds answer_time = std::max(deadline.remaining() / 4, shortest_answer_time);
    store_options.operation_timeout = std::min(store_options.operation_timeout, answer_time);
    auto client = std::make_shared<TcpStore>(identity.store, deadline, store_options);
    return JobStore::open(std::move(server), std::move(client), number);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::timeout) throw;
    throw Error(ErrorCode::timeout,
                "rank " + std::to_string(identity.rank) + " of " + std::to_string(identity.size) +
                    " found nobody at " + identity.store.to_string() +
                    ", where rank 0 should be: rank 0 never arrived, or was given other settings (this rank "
                    "has " +
                    (identity.trust.secret ? "a" : "no") +
                    " secret; MASTER_ADDR, MASTER_PORT, LOCKSTEP_SECRET_FILE and LOCKSTEP_INSECURE must be "
                    "the same everywhere): " +
                    error.what(),
                0);
  }
}

/// The launcher's page, or one that this host's first rank makes.
std::shared_ptr<ControlPage> open_page(const Identity& identity, const Members& members, WatchedStore& store,
                                       Deadline deadline) {
  const PerRank<int> local = members.local_worlds();
  const int ranks = local.size();
  const int mine = members.self().local;
  if (identity.control_fd) {
    UniqueFd copy(::fcntl(*identity.control_fd, F_DUPFD_CLOEXEC, 0));
    if (!copy)
      throw_system("the control page's descriptor, LOCKSTEP_CONTROL_FD=" +
                   std::to_string(*identity.control_fd));
    return std::make_shared<ControlPage>(ControlPage::attach(std::move(copy), ranks));
  }
  const Meeting meeting{
      .endpoint = Endpoint::unix_abstract(identity.socket_prefix + "-page-" + std::to_string(local[0])),
      .job = identity.job,
      .local_rank = mine,
      .local_ranks = ranks,
      .trust = identity.trust,
      .deadline = deadline,
      .world_ranks = local,
      .check = [&store] { store.check(); }};
  if (mine != 0)
    return std::make_shared<ControlPage>(ControlPage::attach(std::move(hand_over(meeting, {}, 1)[0]), ranks));
  auto page = std::make_shared<ControlPage>(ControlPage::create(ranks));
  const int fd = page->fd();
  static_cast<void>(hand_over(meeting, std::span(&fd, 1), 1));
  return page;
}

Tuning agree_on_tuning(Store& store, int rank, Deadline deadline) {
  Tuning tuning = Tuning::from_environment();
  if (rank == 0) {
    store.set("tuning", tuning.to_text());
    return tuning;
  }
  std::string table;
  try {
    table = store.get("tuning", deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::timeout || error.peer()) throw;
    throw Error(
        ErrorCode::timeout,
        "all ranks arrived, but rank 0 did not go on: see what it is doing, and whether it printed an "
        "error",
        0);
  }
  return Tuning::parse(table, "the tuning table of rank 0, which may run another version");
}

/// As much address space as the host has memory; pages get memory when they are allocated.
std::size_t default_arena_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// The address from which this host reaches the store; where the store is on this host, the store's own.
std::string listen_address(const Identity& identity) {
  if (!identity.listen_address.empty()) return identity.listen_address;
  if (identity.store.kind != Endpoint::Kind::tcp) return "127.0.0.1";
  const Socket probe = Socket::connect(identity.store, Deadline::after(std::chrono::seconds(10)));
  return Endpoint::parse(probe.local()).host;
}

/// What holds for groups of one rank, too, which may wait for messages of their own.
void set_options(Context& context, const InitOptions& options) {
  context.options = options.group.value_or(GroupOptions::from_environment());
  context.mailbox_bytes = env::bytes("LOCKSTEP_MAILBOX_BYTES").value_or(context.mailbox_bytes);
}

/// Comes to the job's meeting place.
std::shared_ptr<Context> arrive(const Identity& identity, const JobStore& store, const InitOptions& options,
                                std::chrono::nanoseconds timeout) {
  auto context = Context::of_process({.trust = identity.trust,
                                      .job = identity.job,
                                      .socket_prefix = identity.socket_prefix,
                                      .store_host = identity.store_host(),
                                      .arena_bytes = options.arena_bytes.value_or(
                                          env::bytes("LOCKSTEP_ARENA_BYTES").value_or(default_arena_bytes())),
                                      .arrival_timeout = timeout});
  set_options(*context, options);
  context->store = store.of_world;
  ask_store(identity.store_host(), "the meeting place " + identity.store.to_string(), "all ranks had arrived",
            [&] { context->last_word = leave_word_at_death(*context->store, identity.rank); });
  return context;
}

/// Of each rank of the world, what host_hint() found out there.
PerRank<HostHint> hints_of(const std::vector<std::string>& texts) {
  PerRank<HostHint> hints;
  for (const std::string& text : texts) hints.push_back(hint_of(hints.size(), text));
  const int other = hints.find_if([&](const HostHint& hint) { return hint.engine != hints[0].engine; });
  if (other < hints.size()) {
    throw_invalid_argument("rank 0 has the engine " + hints[0].engine + ", rank " + std::to_string(other) +
                           " the engine " + hints[other].engine +
                           ": LOCKSTEP_ENGINE, or InitOptions::engine, has to be the same everywhere");
  }
  return hints;
}

/// `each`: LOCKSTEP_RANKS_PER_NODE of rank 0; 0: not set.
void require_whole_nodes(int each, int local_ranks) {
  if (each == 0 || each >= local_ranks || local_ranks % each == 0) return;
  throw_invalid_argument("rank 0 has LOCKSTEP_RANKS_PER_NODE=" + std::to_string(each) +
                         ", which does not divide the " + std::to_string(local_ranks) +
                         " ranks of this host: each node of its memory has as many, or leave it unset");
}

/// In a page that this rank's earlier worlds may have used.
void begin_status(ControlPage& page, int mine) {
  RankStatus& status = page.status(mine);
  status.said_goodbye.store(0);
  status.awaits.store(0);
  status.left_at_ns.store(0);
  if (status.joined_at_ns.load() == 0) status.joined_at_ns.store(trace::now_ns());
  status.pid.store(::getpid());
  if (mine == 0) page.first_cause().clear();
}

/// What all groups of this rank need.
void prepare(Group::Impl& impl, const Identity& identity, const PerRank<HostHint>& hints, Deadline deadline) {
  Context& context = *impl.context;
  std::vector<int> world(static_cast<std::size_t>(hints.size()));
  std::iota(world.begin(), world.end(), 0);
  WatchedStore store(context.store, "init", world, context.store_host);
  impl.tuning = agree_on_tuning(store, identity.rank, deadline);
  int local_ranks = 0;
  std::map<std::string, int> numbers;
  for (const HostHint& hint : hints) {
    const int number = numbers.emplace(hint.host(), static_cast<int>(numbers.size())).first->second;
    const bool is_here = hint.host() == hints[identity.rank].host();
    context.places.push_back({.host = number, .page = is_here ? local_ranks++ : -1});
    context.memory_nodes.push_back(hint.memory_node);
  }
  impl.members = Members(identity.rank, world, context.places);
  require_whole_nodes(impl.tuning.ranks_per_node, local_ranks);
  const int mine = impl.members.self().page;
  context.join_page(open_page(identity, impl.members, store, deadline), mine,
                    WaitPolicy::for_ranks_per_core(std::max(topology::ranks_per_core(local_ranks),
                                                            ranks_per_core_here(hints, identity.rank))));
  if (!identity.control_fd) context.profile = view::ProfileOptions::from_environment();
  trace::set_current_spans(std::make_shared<trace::SpanRecorder>(context.page->spans(mine), context.page));
  begin_status(*context.page, mine);
  if (local_ranks < hints.size() && hints[0].engine == to_string(EngineChoice::mpi))
    context.mpi = identity.mpi ? identity.mpi : MpiLibrary::open(identity.rank, hints.size());
  if (local_ranks < hints.size()) context.listen_address = listen_address(identity);
}

/// Joins world `number` of the job. `server`: on the rank that serves its store, to be made if it is null.
Group join(Identity identity, const InitOptions& options, std::shared_ptr<StoreServer>& server, int number,
           const std::function<void()>& note_arrival) {
  const EngineChoice engine = choose_engine(options.engine, "InitOptions::engine");
  const auto timeout = arrival_timeout(options);
  const Deadline deadline = Deadline::after(timeout);
  auto impl = std::make_shared<Group::Impl>();
  impl->name += suffix_of_world(number);
  if (identity.hosts_store && !server) server = serve_store(identity);
  const JobStore store = open_store(identity, server, number, deadline);
  store.require_not_later(identity, number);
  note_arrival();
  if (number > 0) {
    identity.socket_prefix += "-world" + std::to_string(number + 1);
    identity.job += "-world" + std::to_string(number + 1);
  }
  impl->context = arrive(identity, store, options, timeout);
  const auto hints = meet(*impl->context->store, identity, host_hint(engine), deadline);
  try {
    if (identity.rank == 0) store.note_begun(number);
    prepare(*impl, identity, hints_of(hints), deadline);
    connect(*impl);
    for (const auto& mpi : {identity.mpi, impl->context->mpi}) {
      if (mpi) mpi->note_groups();
    }
  } catch (const Error& error) {
    throw first_trouble(*impl->context->store, identity, error);
  }
  impl->context->note(impl);
  return Group(std::move(impl));
}

/// What tells one job's place from another's.
std::string name_of_place(const Identity& identity) {
  return identity.job + " " + identity.store.to_string() + " " + std::to_string(identity.rank) + "/" +
         std::to_string(identity.size);
}

/// As the environment says. REQUIRES: the place's mutex.
Group join_next(PlaceInJob& place, const Identity& identity, const InitOptions& options) {
  if (const std::string job = name_of_place(identity); place.job != job) {
    place.server.reset();  // it may hold the same port
    place.job = job;
    place.worlds = 0;
  }
  return join(identity, options, place.server, place.worlds, [&] { ++place.worlds; });
}

std::atomic<int>& worlds_joined() {
  static std::atomic<int> count = 0;
  return count;
}

/// As InitOptions say: a world that has no other after it.
Group join_only(const Identity& identity, const InitOptions& options) {
  std::shared_ptr<StoreServer> server;
  return join(identity, options, server, 0, [] {});
}

Group alone(const InitOptions& options) {
  Group world;
  set_options(*world.impl().context, options);
  world.impl().context->note(world.shared_impl());
  return world;
}

}  // namespace

Group init(const InitOptions& options) {
  log::require_known_level();
  PlaceInJob& place = PlaceInJob::of_process();
  // Ranks whom InitOptions name may be threads, each of which waits for the others.
  std::unique_lock lock(place.mutex, std::defer_lock);
  if (!options.rank) {
    lock.lock();
    if (auto world = place.world.lock(); world && !world->is_shut_down()) return Group(std::move(world));
  }
  const Identity identity = find_identity(options);
  log::set_rank(identity.rank);
  if (identity.rank == 0) {
    for (const auto& [name, meant] : env::mistyped()) {
      log::warning("nothing reads " + name + ", which is set; is " + meant + " meant?");
    }
  }
  Group world = identity.size == 1 ? alone(options)
                : options.rank     ? join_only(identity, options)
                                   : join_next(place, identity, options);
  ++worlds_joined();
  if (lock.owns_lock()) {
    place.world = world.shared_impl();
  } else {
    lock.lock();
  }
  place.latest = world.shared_impl();
  return world;
}

void shutdown() {
  PlaceInJob& place = PlaceInJob::of_process();
  const std::lock_guard lock(place.mutex);
  if (const auto world = place.world.lock()) world->context->shut_down();
}

int restarts() {
  return static_cast<int>(
      env::integer("TORCHELASTIC_RESTART_COUNT", 0, std::numeric_limits<int>::max()).value_or(0));
}

bool is_initialized() {
  PlaceInJob& place = PlaceInJob::of_process();
  const std::lock_guard lock(place.mutex);
  const auto world = place.latest.lock();
  return world && !world->is_shut_down();
}

int worlds() { return worlds_joined().load(); }

}  // namespace lockstep
