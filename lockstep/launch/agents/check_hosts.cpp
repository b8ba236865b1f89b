#include "lockstep/launch/agents/check_hosts.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "lockstep/base/deadline.h"
#include "lockstep/base/words.h"
#include "lockstep/launch/agents/connection.h"
#include "lockstep/launch/agents/remote_shell.h"

namespace lockstep::launch::agents {
namespace {

using Clock = std::chrono::steady_clock;

struct Asked {
  HostCheck result;
  std::unique_ptr<Connection> connection;
  bool has_answered = false;
};

void note_answer(Asked& asked, Clock::time_point begin) {
  const bool has_greeted = !asked.connection->version().empty();
  if (!has_greeted && !asked.connection->is_over()) return;
  asked.has_answered = true;
  asked.result.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  asked.result.problem = has_greeted ? asked.connection->version_problem() : asked.connection->explain_end();
}

}  // namespace

std::vector<HostCheck> check_hosts(const std::vector<Host>& hosts, const RemoteOptions& remote) {
  sigset_t unblocked;
  sigemptyset(&unblocked);
  const Deadline deadline = Deadline::after(remote.start_timeout);
  const auto begin = Clock::now();
  std::vector<Asked> all;
  for (const Host& host : hosts) {
    all.push_back(
        {.result = {.host = host.name},
         .connection = std::make_unique<Connection>(host.name, shell_for(remote, host.name), unblocked)});
  }
  while (!std::ranges::all_of(all, &Asked::has_answered) && !deadline.expired()) {
    PollSet poll;
    for (Asked& asked : all) {
      if (!asked.has_answered) asked.connection->watch(poll, [](const Message&) {});
    }
    poll.wait(deadline);
    for (Asked& asked : all) {
      if (!asked.has_answered) note_answer(asked, begin);
    }
  }
  std::vector<HostCheck> results;
  for (Asked& asked : all) {
    if (!asked.has_answered)
      asked.result.problem = "has not answered within " + base::exact_duration(remote.start_timeout);
    results.push_back(std::move(asked.result));
  }
  return results;
}

}  // namespace lockstep::launch::agents
