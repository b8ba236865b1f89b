#include "lockstep/train/parameter_server/crew.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/init.h"

namespace lockstep::ps {
namespace {

constexpr const char* group_name = "parameter_server";

/// Names that users of other systems know.
std::vector<std::string> names_of(Task task) {
  switch (task) {
    case Task::server: return {"server", "ps"};
    case Task::coordinator: return {"coordinator", "chief"};
    case Task::worker: return {"worker"};
  }
  return {};
}

bool is_name_of(Task task, const std::string& name) {
  const auto names = names_of(task);
  return std::ranges::find(names, name) != names.end();
}

/// Who waits for requests does so for ever: the launcher says who is gone, and servers who is silent.
InitOptions options_of(bool waits_for_requests) {
  InitOptions options;
  if (waits_for_requests) {
    options.group = GroupOptions::from_environment();
    options.group->timeout = options.group->warn_after = std::chrono::hours(24 * 365);
  }
  return options;
}

}  // namespace

Crew::Crew(int servers, bool has_coordinator)
    : servers_(servers),
      has_coordinator_(has_coordinator),
      timeout_(GroupOptions::from_environment().timeout) {
  std::optional<Group> world;
  const std::string given = role();
  const auto rank = env::integer("RANK", 0, std::numeric_limits<int>::max()).value_or(0);
  const InitOptions options = options_of(given == "default" ? rank < servers + (has_coordinator ? 1 : 0)
                                                            : !is_name_of(Task::worker, given));
  if (ranks_may_change()) {
    membership_.emplace(options);
    self_ = membership_->self();
  } else {
    world = init(options);
    self_ = {.rank = world->rank()};
    for (int number = 0; number < world->size(); ++number) fixed_.push_back({.rank = number});
  }
  const std::string wrong = given == "default" || is_name_of(task(), given) ? "" : another_role(given);
  if (world) require_places(*world, !wrong.empty());
  if (!wrong.empty()) throw_invalid_argument(wrong);
  if (world) {
    if (world->size() <= servers_ + (has_coordinator_ ? 1 : 0))
      throw_invalid_argument(c10::str("ParameterServer: of ", world->size(), " ranks ", servers_,
                                      " are servers", has_coordinator_ ? " and one is the coordinator" : "",
                                      "; nobody is left to work"));
    make_pairs(*world);
  }
}

std::string Crew::another_role(const std::string& given) const {
  const std::string wanted =
      env::text("ROLE_NAME")
          ? c10::str("say --role server:", servers_, has_coordinator_ ? " --role coordinator:1" : "",
                     " --role worker:N in this order")
          : c10::str("TF_CONFIG's cluster has to have ", servers_, " \"ps\" and ",
                     has_coordinator_ ? "a" : "no", " \"chief\"");
  return c10::str("ParameterServer: rank ", self_.rank, " was given the role '", given, "', but is a ",
                  names_of(task())[0], ": the first ranks (", servers_, ") are servers",
                  has_coordinator_ ? ", the next one is the coordinator" : "", ", the others work; ", wanted);
}

/// Where no launcher ends the job, the others would wait for a rank that throws.
void Crew::require_places(const Group& world, bool is_wrong) {
  const int mine = is_wrong ? 1 : 0;
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  all_gather(world, std::span(&mine, 1), std::span(all)).wait();
  const auto other = std::ranges::find(all, 1);
  if (is_wrong || other == all.end()) return;
  const auto rank = static_cast<int>(other - all.begin());
  throw Error(ErrorCode::aborted,
              c10::str("ParameterServer: rank ", rank,
                       " was given a role that is not that of its place; what is "
                       "wrong stands in its output"),
              rank);
}

Task Crew::task_of(int rank) const {
  if (rank < servers_) return Task::server;
  return has_coordinator_ && rank == servers_ ? Task::coordinator : Task::worker;
}

std::vector<Life> Crew::workers() const {
  std::vector<Life> found;
  for (const Life& life : membership_ ? membership_->view().members : fixed_) {
    if (task_of(life.rank) == Task::worker) found.push_back(life);
  }
  return found;
}

std::uint64_t Crew::newest() const { return membership_ ? membership_->newest() : 1; }

Life Crew::life_of(int rank) const {
  const auto members = membership_ ? membership_->view().members : fixed_;
  const auto found = std::ranges::find(members, rank, &Life::rank);
  if (found == members.end())
    throw Error(ErrorCode::aborted,
                c10::str("ParameterServer: rank ", rank, ", the ", names_of(task_of(rank))[0],
                         ", has left the job: it is over"),
                rank);
  return *found;
}

void Crew::put_out(int rank, const std::string& why) const {
  if (!membership_) throw Error(ErrorCode::timeout, why, rank);
  membership_->put_out(rank, why);
}

bool Crew::have_hosts_ended() const {
  if (!membership_) return false;
  constexpr auto news = std::chrono::seconds(5);  // that travel from the launcher
  const int hosts = servers_ + (has_coordinator_ ? 1 : 0);
  for (const Deadline deadline = Deadline::after(news); !deadline.expired();) {
    const View view = membership_->view();
    const auto there =
        std::ranges::count_if(view.members, [&](const Life& life) { return life.rank < hosts; });
    if (there < hosts) return true;
    (void)membership_->await_after(view.number, deadline.remaining());
  }
  return false;
}

Group Crew::pair(const Life& host, const Life& client) {
  if (membership_) return membership_->group(std::array{host, client}, group_name);
  const std::lock_guard lock(mutex_);
  return pairs_.extract({host.rank, client.rank}).mapped();
}

Group Crew::all_servers() {
  if (!membership_) return *fixed_servers_;
  std::vector<Life> servers;
  for (int rank = 0; rank < servers_; ++rank) servers.push_back(life_of(rank));
  return membership_->group(servers, "parameter_servers");
}

/// All ranks make their groups in one order.
void Crew::make_pairs(const Group& world) {
  const int hosts = servers_ + (has_coordinator_ ? 1 : 0);
  for (int host = 0; host < hosts; ++host) {
    for (int client = std::max(servers_, host + 1); client < world.size(); ++client) {
      if (world.rank() == host || world.rank() == client)
        pairs_.emplace(std::pair(host, client), world.subgroup(std::array{host, client}));
    }
  }
  if (self_.rank >= servers_) return;
  std::vector<int> servers;
  for (int rank = 0; rank < servers_; ++rank) servers.push_back(rank);
  fixed_servers_ = world.subgroup(servers);
}

}  // namespace lockstep::ps
