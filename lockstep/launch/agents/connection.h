// The launcher's line to the agent on one host: the pipe to it, the remote shell that has started it, and what the shell
// says where it fails; or the socket by which it came of its own accord.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/socket.h"
#include "lockstep/launch/agents/message_pipe.h"
#include "lockstep/launch/agents/remote_shell.h"
#include "lockstep/launch/poll_set.h"

namespace lockstep::launch::agents {

class Connection {
 public:
  /// Starts the shell. Throws Error{system}, CannotExecute.
  Connection(std::string host, const RemoteShell& shell, const sigset_t& signal_mask);
  /// Of an agent that has come.
  Connection(std::string host, const Socket& socket);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const std::string& host() const { return host_; }
  void name_host(std::string host) { host_ = std::move(host); }
  /// Started by somebody else, with a launcher of its own on its host.
  bool has_come() const { return pid_ == 0; }
  MessagePipe& pipe() { return *pipe_; }
  /// Of the agent's first line; "": it has not come yet.
  const std::string& version() const { return pipe_->version(); }
  bool is_over() const { return pipe_->is_over(); }

  /// Says what to wait for. `take` gets the agent's messages; one that cannot be is this connection's end, with a reason.
  void watch(PollSet& poll, const MessageParser::Take& take);
  /// That the agent's first line tells of another version than ours; "" where it does not.
  std::string version_problem() const;
  /// REQUIRES: is_over(). Why it ended: the shell's last words with what to do about them, or how it ended.
  std::string explain_end();
  /// What the shell, or the agent, wrote to stderr and was not taken: whole lines.
  std::string take_words();
  void close() { pipe_->close(); }

 private:
  void read_words();

  std::string host_;
  RemoteShell shell_;
  pid_t pid_ = 0;  // of the shell
  std::optional<MessagePipe> pipe_;
  UniqueFd words_fd_;  // of its stderr
  std::string words_;
  std::string all_words_;  // the last of them, also those that were taken
  std::optional<int> wait_status_;
};

/// What to do about a remote shell's last words; "" where that is not known. `path`: of the agent.
std::string advice_for(const std::string& words, const std::string& host, const std::string& path);

}  // namespace lockstep::launch::agents
