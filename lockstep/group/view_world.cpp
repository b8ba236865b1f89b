#include "lockstep/group/view_world.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/group/engine_choice.h"
#include "lockstep/group/joining.h"
#include "lockstep/group/preparation.h"
#include "lockstep/rendezvous/prefix_store.h"
#include "lockstep/rendezvous/view_board.h"
#include "lockstep/topology/topology.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// From one look for a newer view to the next, while others are waited for.
constexpr auto longest_slice = 200ms;
// How long the launcher may take from a death to the view without the dead.
constexpr auto view_takes = 5s;

/// All that a world has to itself: "world" and "#2" for that of view 2, "#2.1" for the next one of the same view.
std::string suffix_of(std::uint64_t view, int attempt) {
  if (view == 1 && attempt == 0) return "";
  return "#" + std::to_string(view) + (attempt == 0 ? "" : "." + std::to_string(attempt));
}

/// Throws where one of the lives is out of the job.
void require_in(JobViews& views, const std::vector<Life>& lives, std::uint64_t& looked_at) {
  if (views.newest() == looked_at) return;
  const View view = views.get(views.newest(), Deadline::after(view_takes));
  for (const Life& life : lives) {
    if (view.has(life)) continue;
    const std::string why = ViewBoard(*views.store()).why_out(life).value_or("it has not come to it");
    throw Error(ErrorCode::peer_lost, "rank " + std::to_string(life.rank) + " is not in the job: " + why,
                life.rank);
  }
  looked_at = view.number;
}

/// Some may just be on their way.
PerRank<HostHint> hints_of(JobViews& views, const std::vector<Life>& lives,
                           const std::function<void()>& check, Deadline deadline) {
  PerRank<HostHint> hints;
  while (hints.size() < static_cast<int>(lives.size())) {
    try {
      hints.push_back(views.hint_of(lives[static_cast<std::size_t>(hints.size())],
                                    deadline.earlier_of(Deadline::after(longest_slice))));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::timeout || deadline.expired()) throw;
      check();
    }
  }
  return hints;
}

/// Others may read what is known already. REQUIRES: the root's mutex.
void note_place(Group::Impl& root, int rank, const HostHint& hint, bool is_here) {
  const int known = static_cast<int>(root.hosts_seen.size());
  const HostPlace place{.host = root.hosts_seen.emplace(hint.host(), known).first->second,
                        .page = is_here ? hint.in_page : -1};
  HostPlace& noted = root.context->places[rank];
  if (noted.host == place.host && noted.page == place.page) return;
  noted = place;
  root.context->memory_nodes[rank] = hint.memory_node;
}

/// nullptr: there is a newer view.
std::shared_ptr<Group::Impl> join_attempt(JobViews& views, const View& view, int attempt, Identity identity,
                                          const std::shared_ptr<Context>& joined, const InitOptions& options,
                                          Deadline deadline) {
  const std::string suffix = suffix_of(view.number, attempt);
  const auto store = std::make_shared<PrefixStore>(
      views.store(), ViewBoard::place_of(view.number) + "/" + std::to_string(attempt));
  identity.socket_prefix += suffix;
  identity.job += suffix;
  auto impl = std::make_shared<Group::Impl>();
  impl->name += suffix;
  impl->context = arrive(identity, store, options);
  impl->context->goes_on = true;
  if (!views.meet(*store, view, deadline)) return nullptr;
  try {
    Crew crew{.mine = *view.place_of(views.self()), .ranks_in_job = view.ranks(), .joined = joined};
    for (const Life& life : view.members) crew.hints.push_back(views.hint_of(life, deadline));
    prepare(*impl, identity, crew, deadline);
    connect(*impl);
  } catch (const Error& error) {
    throw first_trouble(*store, identity, error);
  }
  impl->context->note(impl);
  return impl;
}

}  // namespace

JobViews& views_of(PlaceInJob& place, const Identity& identity, const InitOptions& options) {
  if (!place.views) {
    place.views = std::make_shared<JobViews>(identity, engine_of_rank(options.engine),
                                             Deadline::after(arrival_timeout(options)));
  }
  return *place.views;
}

std::shared_ptr<Context> joined_context(PlaceInJob& place, const Identity& identity,
                                        const InitOptions& options) {
  if (auto joined = place.joined.lock()) return joined;
  const JobViews& views = views_of(place, identity, options);
  auto context = context_of(identity, std::make_shared<PrefixStore>(views.store(), "groups"), options);
  context->goes_on = true;
  context->join_page(views.page(), identity.place_in_page,
                     WaitPolicy::for_ranks_per_core(topology::ranks_per_core(identity.local_size)));
  if (identity.store.kind == Endpoint::Kind::tcp) context->listen_addresses = listen_addresses(identity);
  context->places.resize(identity.size);
  context->memory_nodes = PerRank<int>(identity.size, -1);
  place.joined = context;
  return context;
}

Group group_of_lives(const std::shared_ptr<Group::Impl>& root, const std::shared_ptr<JobViews>& views,
                     const std::vector<Life>& lives, const std::string& name) {
  Context& context = *root->context;
  const Deadline deadline = Deadline::after(context.arrival_timeout);
  auto made = std::make_shared<Group::Impl>();
  made->name = name;
  made->context = root->context;
  made->parent = root;
  made->tuning = root->tuning;
  std::vector<int> ranks;
  for (const Life& life : lives) ranks.push_back(life.rank);
  std::uint64_t looked_at = 0;
  made->check = [views, lives, looked_at]() mutable { require_in(*views, lives, looked_at); };
  const int mine = static_cast<int>(std::ranges::find(lives, views->self()) - lives.begin());
  try {
    made->check();
    const PerRank<HostHint> hints = hints_of(*views, lives, made->check, deadline);
    {
      const std::lock_guard lock(root->mutex);
      for (int place = 0; place < hints.size(); ++place)
        note_place(*root, ranks[static_cast<std::size_t>(place)], hints[place],
                   hints[place].host() == hints[mine].host());
      made->members = Members(mine, ranks, context.places);
    }
    connect(*made);
  } catch (const Error& error) {
    throw Error(error.code(), "making group \"" + name + "\": " + error.what(), error.peer());
  }
  made->check = {};
  context.note(made);
  return Group(std::move(made));
}

Group join_view(PlaceInJob& place, const Identity& identity, const InitOptions& options) {
  JobViews& views = views_of(place, identity, options);
  const auto joined = joined_context(place, identity, options);
  for (;;) {
    const Deadline deadline = Deadline::after(arrival_timeout(options));
    const View view = views.await_own(deadline);
    if (std::exchange(place.view, view.number) != view.number) place.attempts = 0;
    const int attempt = place.attempts++;
    try {
      if (auto world = join_attempt(views, view, attempt, identity, joined, options, deadline)) {
        views.note_working();
        return Group(std::move(world));
      }
    } catch (const Error& error) {
      const bool is_about_another = error.peer() && *error.peer() != views.self().rank;
      if (!is_about_another) throw;
      log::debug("view " + std::to_string(view.number) + ": " + error.what());
      if (error.code() == ErrorCode::timeout) views.report(*error.peer(), error.what());
      if (!views.await_after(view.number, Deadline::after(view_takes))) throw;
    }
  }
}

}  // namespace lockstep
