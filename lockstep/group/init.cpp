// init(): identity, meeting, who shares a host, control page, world group.
#include "lockstep/group/init.h"

#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/group/engine_choice.h"
#include "lockstep/group/identity.h"
#include "lockstep/group/impl.h"
#include "lockstep/group/joining.h"
#include "lockstep/group/meet.h"
#include "lockstep/group/place_in_job.h"
#include "lockstep/group/preparation.h"
#include "lockstep/group/tf_config.h"
#include "lockstep/group/view_world.h"
#include "lockstep/rendezvous/store_server.h"

namespace lockstep {
namespace {

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

/// Joins world `number` of the job. `server`: on the rank that serves its store, to be made if it is null.
Group join(Identity identity, const InitOptions& options, std::shared_ptr<StoreServer>& server, int number,
           const std::function<void()>& note_arrival) {
  const EngineChoice engine = engine_of_rank(options.engine);
  const Deadline deadline = Deadline::after(arrival_timeout(options));
  auto impl = std::make_shared<Group::Impl>();
  impl->name += suffix_of_world(number);
  if (identity.hosts_store && !server) server = serve_store(identity);
  const JobStore store = JobStore::open(server, connect_to_store(identity, deadline), number);
  store.require_not_later(identity, number);
  note_arrival();
  if (number > 0) {
    identity.socket_prefix += "-world" + std::to_string(number + 1);
    identity.job += "-world" + std::to_string(number + 1);
  }
  impl->context = arrive(identity, store.of_world, options);
  std::vector<std::string> hints;
  try {
    hints = meet(*impl->context->store, identity, HostHint::own(engine), deadline);
  } catch (const Error& error) {
    tell_launcher(identity, error);
    throw;
  }
  try {
    if (identity.rank == 0) store.note_begun(number);
    Crew crew{.mine = identity.rank,
              .ranks_in_job = std::vector<int>(hints.size()),
              .hints = HostHint::parse_all(hints)};
    std::iota(crew.ranks_in_job.begin(), crew.ranks_in_job.end(), 0);
    prepare(*impl, identity, crew, deadline);
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
  Group world = identity.incarnation ? join_view(place, identity, options)
                : identity.size == 1 ? alone(options)
                : options.rank       ? join_only(identity, options)
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

int incarnation() {
  return static_cast<int>(
      env::integer("LOCKSTEP_INCARNATION", 0, std::numeric_limits<int>::max()).value_or(0));
}

std::string role() {
  if (const auto given = env::text("ROLE_NAME")) return *given;
  const auto config = env::text("RANK") ? std::nullopt : env::text("TF_CONFIG");
  return config ? parse_tf_config(*config).role : "default";
}

bool ranks_may_change() { return env::text("LOCKSTEP_INCARNATION").has_value(); }

bool world_has_changed() {
  PlaceInJob& place = PlaceInJob::of_process();
  const std::lock_guard lock(place.mutex);
  return place.views && place.views->newest() != place.view;
}

bool is_initialized() {
  PlaceInJob& place = PlaceInJob::of_process();
  const std::lock_guard lock(place.mutex);
  const auto world = place.latest.lock();
  return world && !world->is_shut_down();
}

int worlds() { return worlds_joined().load(); }

}  // namespace lockstep
