// How the ranks of a new group come together: who shares a host is known from init(); those share a region,
// and each rank that has ranks on other hosts opens a door for them and leaves its address in the store.
#include <unistd.h>

#include "lockstep/backend/mpi/mpi_exchange.h"
#include "lockstep/backend/native/native_backend.h"
#include "lockstep/backend/native/split_transport.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/log.h"
#include "lockstep/group/impl.h"
#include "lockstep/group/joining.h"
#include "lockstep/group/native_options.h"
#include "lockstep/transport/ring/hand_over.h"
#include "lockstep/transport/ring/presence.h"
#include "lockstep/transport/ring/ring_transport.h"

namespace lockstep {
namespace {

std::shared_ptr<HostRegion> create_region(int local_ranks, std::size_t arena_bytes) try {
  return HostRegion::create(local_ranks, arena_bytes);
} catch (const Error& error) {
  if (error.code() != ErrorCode::system) throw;
  throw Error(ErrorCode::system,
              std::string(error.what()) + "; each rank's arena has an address space of " +
                  std::to_string(arena_bytes) +
                  " bytes (LOCKSTEP_ARENA_BYTES; the default is this host's memory), which "
                  "`ulimit -v` may forbid");
}

/// The group's ranks on this host share one region.
std::shared_ptr<HostRegion> share_region(const Group::Impl& impl, WatchedStore& store, Deadline deadline) {
  const Context& context = *impl.context;
  const int mine = impl.members.self().local;
  const PerRank<int> local = impl.members.local_worlds();
  const int local_ranks = impl.members.local_size();
  const Meeting meeting{
      .endpoint = Endpoint::unix_abstract(context.socket_prefix + "-g" + std::to_string(fnv1a_64(impl.name)) +
                                          "-" + std::to_string(local[0])),
      .job = context.job,
      .group = impl.name,
      .local_rank = mine,
      .local_ranks = local_ranks,
      .trust = context.trust,
      .deadline = deadline,
      .world_ranks = local,
      .check = [&store] { store.check(); }};
  if (mine != 0) return HostRegion::attach(std::move(hand_over(meeting, {}, 1).front()), local_ranks);
  auto region = create_region(local_ranks, own_arena_bytes(impl));
  const int fd = region->fd();
  static_cast<void>(hand_over(meeting, std::span(&fd, 1), 1));
  return region;
}

[[noreturn]] void throw_unconnected(const Group::Impl& impl, int world) {
  throw Error(ErrorCode::timeout,
              "rank " + std::to_string(world) + " did not connect to group \"" + impl.name +
                  "\": see what it is doing, and whether it printed an error",
              world);
}

std::string address_of(const Group::Impl& impl, int rank, Store& store, Deadline deadline) {
  try {
    return store.get("address/" + std::to_string(rank), deadline.later_by(others_speak_first));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::timeout) throw;
    throw_unconnected(impl, impl.members[rank].world);
  }
}

std::unique_ptr<Transport> make_transport(const Group::Impl& impl, const std::shared_ptr<HostRegion>& region,
                                          Store& store, Deadline deadline) {
  const Context& context = *impl.context;
  auto rings = std::make_unique<RingTransport>(
      RingTransportOptions{.members = impl.members,
                           .region = region,
                           .page = context.page,
                           .is_alive = watch_presence(region, impl.members.self().local),
                           .is_whole_job = is_whole_job(impl)});
  if (impl.members.are_on_one_host()) return rings;

  auto sockets = std::make_unique<TcpTransport>(
      TcpTransportOptions{.members = impl.members,
                          .job = context.job,
                          .group = impl.name,
                          .listen_addresses = context.listen_addresses,
                          .connections = impl.tuning.connections,
                          .trust = context.trust,
                          .connect_timeout = context.options.timeout,
                          .told_again = waiting_told_again(context.options.timeout),
                          .is_whole_job = is_whole_job(impl)});
  store.set("address/" + std::to_string(impl.rank()), sockets->address());
  PerRank<std::string> addresses(impl.size());
  for (int rank = 0; rank < impl.size(); ++rank) {
    if (!impl.members[rank].is_here()) addresses[rank] = address_of(impl, rank, store, deadline);
  }
  sockets->set_addresses(addresses);
  return std::make_unique<SplitTransport>(impl.members, std::move(rings), std::move(sockets));
}

/// Until each of `worlds` has set its key; throws Error{timeout} for the first that has not by the deadline.
void wait_for_each(const Group::Impl& impl, Store& store, const std::string& word,
                   const std::vector<int>& worlds, Deadline deadline) {
  std::vector<std::string> keys;
  for (const int world : worlds) keys.push_back(word + std::to_string(world));
  try {
    store.wait(keys, deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::timeout) throw;
    for (std::size_t index = 0; index < keys.size(); ++index) {
      if (!store.try_get(keys[index])) throw_unconnected(impl, worlds[index]);
    }
  }
}

/// Nobody may ask whether another is alive before that one has marked itself as present.
void await_all(const Group::Impl& impl, Store& store, Deadline deadline) {
  store.set("ready/" + std::to_string(impl.members.self().world), "1");
  wait_for_each(impl, store, "ready/", impl.members.worlds(), deadline.later_by(2 * others_speak_first));
}

/// What the ranks have told each other in the store is forgotten when all have read it: groups are made again and again, and the
/// store holds so much and no more. The rank that serves the store may leave the job right after this, and must not before the
/// others have read in it for the last time. Throws only if that takes as long as coming together may.
void close_store(const Group::Impl& impl, Store& store, Deadline deadline) {
  const int me = impl.members.self().world;
  const int host = impl.context->store_host;
  std::vector<int> others = impl.members.worlds();
  const bool host_is_member = std::erase(others, host) > 0;
  try {
    if (host_is_member) {
      if (me != host) return store.set("through/" + std::to_string(me), "1");
      wait_for_each(impl, store, "through/", others,
                    deadline.earlier_of(Deadline::after(std::chrono::seconds(10))));
    } else if (store.add("through", 1) < impl.size()) {
      return;
    }
    for (const char* const key : {"address/", "ready/", "through"}) store.erase_all(key);
  } catch (const Error& error) {  // one that died meanwhile shows soon enough, and so does the host's end
    if (error.code() == ErrorCode::timeout && deadline.expired()) throw;
    log::debug(error.what());
  }
}

}  // namespace

void connect(Group::Impl& impl) {
  const Context& context = *impl.context;
  const Deadline deadline = Deadline::after(context.arrival_timeout);
  if (impl.size() == 1) return;

  WatchedStore store(context.store, "group/" + impl.name, impl.members.worlds(), context.store_host,
                     impl.check);
  const auto region = share_region(impl, store, deadline);
  borrow_arenas(impl, *region);
  auto transport = make_transport(impl, region, store, deadline);
  auto options = native_options(impl, region, std::move(transport));
  if (context.mpi && !impl.members.are_on_one_host())
    options.exchange = std::make_shared<MpiExchange>(context.mpi, impl.members, impl.name, deadline);
  const auto backend = NativeBackend::make(std::move(options));
  impl.backend = backend;
  if (!impl.members.are_on_one_host()) context.progress->start_thread();

  try {
    await_all(impl, store, deadline);
    close_store(impl, store, deadline);
  } catch (const Error& error) {  // others may be through already, and in their first calls
    backend->fail(error);
    throw;
  }
}

}  // namespace lockstep
