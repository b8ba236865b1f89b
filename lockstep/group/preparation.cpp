#include "lockstep/group/preparation.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/group/joining.h"
#include "lockstep/group/told_error.h"
#include "lockstep/rendezvous/tcp_store.h"
#include "lockstep/topology/topology.h"
#include "lockstep/transport/ring/hand_over.h"

namespace lockstep {
namespace {

constexpr std::chrono::nanoseconds shortest_answer_time = std::chrono::milliseconds(250);

/// Throws Error{invalid_argument} where ranks that have another loopback than this one's host were to come there.
void require_reachable(const std::string& address, const PerRank<HostHint>& hints, int mine) {
  if (!address.starts_with("127.") && address != "::1") return;
  const int other =
      hints.find_if([&](const HostHint& hint) { return hint.network() != hints[mine].network(); });
  if (other == hints.size()) return;
  throw_invalid_argument(
      fmt::format("rank {} was told to listen at {}, where rank {} of another host cannot come; set "
                  "LOCKSTEP_IFACE to an interface that leads to the other hosts, or leave it out",
                  mine, address, other));
}

/// The launcher's page, or one that this host's first rank makes.
std::shared_ptr<ControlPage> open_page(const Identity& identity, const Members& members, WatchedStore& store,
                                       Deadline deadline) {
  const PerRank<int> local = members.local_worlds();
  const int ranks = local.size();
  const int mine = members.self().local;
  if (identity.control_fd) return launchers_page(*identity.control_fd, ranks);
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

Tuning agree_on_tuning(Store& store, int mine, std::optional<Dtype> wire_dtype, Deadline deadline) {
  Tuning tuning = Tuning::from_environment();
  if (wire_dtype)
    tuning.wire_dtype = wire_dtype_named(std::string(to_string(*wire_dtype)), "InitOptions::wire_dtype");
  if (mine == 0) {
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

/// `each`: LOCKSTEP_RANKS_PER_NODE of rank 0; 0: not set.
void require_whole_nodes(int each, int local_ranks) {
  if (each == 0 || each >= local_ranks || local_ranks % each == 0) return;
  throw_invalid_argument("rank 0 has LOCKSTEP_RANKS_PER_NODE=" + std::to_string(each) +
                         ", which does not divide the " + std::to_string(local_ranks) +
                         " ranks of this host: each node of its memory has as many, or leave it unset");
}

/// In a page that this rank's earlier worlds may have used. `is_first`: of the world's ranks on this host.
void begin_status(ControlPage& page, int mine, bool is_first) {
  RankStatus& status = page.status(mine);
  status.said_goodbye.store(0);
  status.awaits.store(0);
  status.left_at_ns.store(0);
  if (status.joined_at_ns.load() == 0) status.joined_at_ns.store(trace::now_ns());
  status.pid.store(::getpid());
  status.worlds.fetch_add(1);
  if (is_first) page.first_cause().clear();
}

}  // namespace

std::shared_ptr<Store> connect_to_store(const Identity& identity, Deadline deadline) {
  try {
    TcpStoreOptions options{.trust = identity.trust, .job = identity.job, .rank = identity.rank};
    // A store that is silent when the deadline has passed must not hold anybody up as long again.
    const std::chrono::nanoseconds answer_time = std::max(deadline.remaining() / 4, shortest_answer_time);
    options.operation_timeout = std::min(options.operation_timeout, answer_time);
    return std::make_shared<TcpStore>(identity.store, deadline, options);
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

std::vector<std::string> listen_addresses(const Identity& identity) {
  if (!identity.listen_addresses.empty()) return identity.listen_addresses;
  if (identity.store.kind != Endpoint::Kind::tcp) return {"127.0.0.1"};
  const Socket probe = Socket::connect(identity.store, Deadline::after(std::chrono::seconds(10)));
  return {Endpoint::parse(probe.local()).host};
}

std::shared_ptr<ControlPage> launchers_page(int control_fd, int local_ranks) {
  UniqueFd copy(::fcntl(control_fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) throw_system("the control page's descriptor, LOCKSTEP_CONTROL_FD=" + std::to_string(control_fd));
  return std::make_shared<ControlPage>(ControlPage::attach(std::move(copy), local_ranks));
}

void tell_launcher(const Identity& identity, const Error& error) {
  const bool is_anothers = error.code() == ErrorCode::peer_lost || error.code() == ErrorCode::timeout;
  if (!identity.control_fd || !is_anothers || error.peer().value_or(-1) < 0) return;
  (void)launchers_page(*identity.control_fd, 0)
      ->first_cause()
      .set({.code = error.code(), .culprit = *error.peer(), .reporter = identity.rank, .text = error.what()});
}

void set_options(Context& context, const InitOptions& options) {
  context.options = options.group.value_or(GroupOptions::from_environment());
  context.mailbox_bytes = env::bytes("LOCKSTEP_MAILBOX_BYTES").value_or(context.mailbox_bytes);
}

std::shared_ptr<Context> context_of(const Identity& identity, std::shared_ptr<Store> store,
                                    const InitOptions& options) {
  auto context = Context::of_process({.store = std::move(store),
                                      .trust = identity.trust,
                                      .job = identity.job,
                                      .socket_prefix = identity.socket_prefix,
                                      .store_host = identity.store_host(),
                                      .arena_bytes = options.arena_bytes.value_or(
                                          env::bytes("LOCKSTEP_ARENA_BYTES").value_or(default_arena_bytes())),
                                      .arrival_timeout = arrival_timeout(options)});
  set_options(*context, options);
  context->wire_dtype = options.wire_dtype;
  return context;
}

std::shared_ptr<Context> arrive(const Identity& identity, std::shared_ptr<Store> store,
                                const InitOptions& options) {
  auto context = context_of(identity, std::move(store), options);
  ask_store(identity.store_host(), "the meeting place " + identity.store.to_string(), "all ranks had arrived",
            [&] { context->last_word = leave_word_at_death(*context->store, identity.rank); });
  return context;
}

void prepare(Group::Impl& impl, const Identity& identity, const Crew& crew, Deadline deadline) {
  Context& context = *impl.context;
  const PerRank<HostHint>& hints = crew.hints;
  WatchedStore store(context.store, "init", crew.ranks_in_job, context.store_host);
  impl.tuning = agree_on_tuning(store, crew.mine, context.wire_dtype, deadline);
  const int highest = std::ranges::max(crew.ranks_in_job);
  context.places.resize(highest + 1);
  context.memory_nodes = PerRank<int>(highest + 1, -1);
  int local_ranks = 0;
  std::map<std::string, int> numbers;
  for (int place = 0; place < hints.size(); ++place) {
    const HostHint& hint = hints[place];
    const int rank = crew.ranks_in_job[static_cast<std::size_t>(place)];
    const int number = numbers.emplace(hint.host(), static_cast<int>(numbers.size())).first->second;
    const bool is_here = hint.host() == hints[crew.mine].host();
    const int in_page = !is_here ? -1 : hint.in_page >= 0 ? hint.in_page : local_ranks;
    local_ranks += is_here ? 1 : 0;
    context.places[rank] = {.host = number, .page = in_page};
    context.memory_nodes[rank] = hint.memory_node;
  }
  impl.members = Members(crew.mine, crew.ranks_in_job, context.places);
  require_whole_nodes(impl.tuning.ranks_per_node, local_ranks);
  const int mine = impl.members.self().page;
  if (crew.joined) {
    context.join_page_with(crew.joined);
  } else {
    context.join_page(open_page(identity, impl.members, store, deadline), mine,
                      WaitPolicy::for_ranks_per_core(std::max(topology::ranks_per_core(local_ranks),
                                                              ranks_per_core_here(hints, crew.mine))));
  }
  if (!identity.control_fd) context.profile = view::ProfileOptions::from_environment();
  trace::set_current_spans(std::make_shared<trace::SpanRecorder>(context.page->spans(mine), context.page));
  begin_status(*context.page, mine, impl.members.self().local == 0);
  if (local_ranks < hints.size() && hints[0].engine == to_string(EngineChoice::mpi))
    context.mpi =
        identity.mpi ? identity.mpi : MpiLibrary::open(identity.rank, hints.size(), context.arrival_timeout);
  if (context.mpi && impl.tuning.wire_dtype) {
    throw_invalid_argument(fmt::format(
        "rank 0 has LOCKSTEP_WIRE_DTYPE={}, but with the engine mpi it is MPI that sends, in full width: "
        "leave one of them out",
        to_string(*impl.tuning.wire_dtype)));
  }
  if (local_ranks < hints.size()) {
    context.listen_addresses = listen_addresses(identity);
    for (const std::string& address : context.listen_addresses) require_reachable(address, hints, crew.mine);
  }
}

}  // namespace lockstep
