#include "lockstep/launch/agents/follow.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/proof.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/words.h"
#include "lockstep/launch/agents/agent.h"
#include "lockstep/launch/agents/gather.h"
#include "lockstep/launch/agents/message_pipe.h"
#include "lockstep/launch/agents/node_door.h"
#include "lockstep/launch/poll_set.h"
#include "lockstep/launch/stop_orders.h"

namespace lockstep::launch::agents {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds longest_try{2000};
constexpr milliseconds between_tries{100};
constexpr milliseconds time_to_prove{5000};  // it may be busy with others

/// A connection to the launcher that leads. Throws CannotGather where we are told to end meanwhile, Error.
Socket come_to_meeting(const RunOptions& options, GuardLine& guard) {
  const NodeOptions& nodes = options.nodes.value();
  const Deadline deadline = Deadline::after(options.remote.start_timeout);
  StopOrders stop;
  bool guard_gone = false;
  for (;;) {
    try {
      Socket socket = Socket::connect_once(nodes.meeting, deadline.earlier_of(Deadline::after(longest_try)));
      prove_as_client(socket, {.secret = nodes.secret}, meeting_of(nodes), {.rank = nodes.rank.value_or(-1)},
                      deadline.earlier_of(Deadline::after(time_to_prove)));
      return socket;
    } catch (const Error& error) {
      const bool may_come = error.code() == ErrorCode::peer_lost || error.code() == ErrorCode::timeout;
      if (!may_come) {
        throw Error(
            error.code(),
            std::string("the launcher that leads does not take this one: ") + error.what() +
                "; all launchers need the same LOCKSTEP_SECRET_FILE and --rdzv-id, and each a --node-rank "
                "of its own");
      }
      if (deadline.expired()) {
        throw Error(
            ErrorCode::timeout,
            fmt::format("no launcher leads at {} within {} (--start-timeout): {}", nodes.meeting.to_string(),
                        base::exact_duration(options.remote.start_timeout), error.what()));
      }
    }
    PollSet poll;
    poll.watch(guard.orders.get(), POLLIN,
               [&] { guard_gone = !guard.take_orders([&](int signal) { (void)stop.take(signal); }); });
    poll.wait(deadline.earlier_of(Deadline::after(between_tries)));
    if (stop.first() != 0 || guard_gone)
      throw CannotGather(128 + stop.first(), "ended by " + base::signal_name(stop.first()));
  }
}

void say(const std::string& text) { (void)!::write(STDERR_FILENO, text.data(), text.size()); }

}  // namespace

bool someone_leads(const RunOptions& options) try {
  (void)Socket::connect_once(options.nodes->meeting, Deadline::after(longest_try));
  return true;
} catch (const Error&) {
  return false;
}

int follow(const RunOptions& options, GuardLine& guard) {
  const std::string leader = "the launcher that leads, at " + options.nodes->meeting.to_string() + ",";
  for (;;) {
    const Socket socket = come_to_meeting(options, guard);
    socket.end_when_cut(cut_network_limit);
    const AgentEnd end = serve_launcher(guard, {copy_of(socket.fd()), copy_of(socket.fd())}, &options);
    if (end.conclusion) {
      say(end.conclusion->summary);
      if (end.conclusion->again == 0) return end.conclusion->exit_code;
    } else if (end.stopped_by != 0) {
      throw CannotGather(128 + end.stopped_by, "ended by " + base::signal_name(end.stopped_by));
    } else {
      throw CannotGather(
          1, leader + " has ended, or the network to it is cut; all ranks of this host have been ended");
    }
  }
}

}  // namespace lockstep::launch::agents
