#include "lockstep/launch/agents/connection.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/child.h"
#include "lockstep/launch/limits.h"
#include "lockstep/launch/program.h"
#include "lockstep/launch/verdict.h"

namespace lockstep::launch::agents {
namespace {

constexpr std::size_t most_words = 4096;
constexpr std::chrono::milliseconds time_to_end{500};

struct PipeEnds {
  UniqueFd read, write;
};

PipeEnds make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_refused("making a pipe to an agent");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::string last_line_of(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.remove_suffix(1);
  const std::size_t begin = text.find_last_of("\n\r");
  return std::string(begin == std::string_view::npos ? text : text.substr(begin + 1));
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

std::string advice_for(const std::string& words, const std::string& host, const std::string& path) {
  if (has(words, "Permission denied (") || has(words, "Permission denied, please")) {  // ssh's, not a shell's
    return "ssh has to get in without a password: `ssh-copy-id " + host +
           "`, or start an ssh-agent with a key it accepts";
  }
  if (has(words, "REMOTE HOST IDENTIFICATION HAS CHANGED"))
    return "its key is not the one that ssh knows: look why by `ssh " + host + "`";
  if (has(words, "Host key verification failed"))
    return "ssh does not know its key yet: look at it by `ssh " + host +
           "`, and accept it there if it is right";
  if (has(words, "Could not resolve") || has(words, "Name or service not known"))
    return "no host has this name here";
  if (has(words, "Connection refused"))
    return "nothing accepts ssh there; ports other than 22: --ssh 'ssh -p PORT'";
  if (has(words, "timed out") || has(words, "No route to host"))
    return "it is down, or the network does not lead there";
  if (has(words, "Permission denied") || has(words, "cannot execute"))
    return "may it be executed there? --agent PATH (now " + path + ")";
  if (has(words, "No such file") || has(words, "not found"))
    return "install the same version of Lockstep there, or say where it is: --agent PATH (now " + path + ")";
  return "";
}

/// What is said of a program for reaching a host that is not there.
std::string remedy_for(RemoteShell::Kind kind) {
  if (kind != RemoteShell::Kind::ssh) return "";
  return "; it is what reaches other hosts: install OpenSSH's client, or say which (--ssh COMMAND, "
         "LOCKSTEP_SSH)";
}

Connection::Connection(std::string host, const RemoteShell& shell, const sigset_t& signal_mask)
    : host_(std::move(host)), shell_(shell) {
  const std::vector<std::string> command = agent_command(shell, host_);
  const Program program = find_program(command.front(), search_path());
  if (!program.problem.empty()) throw CannotExecute(program.problem + remedy_for(shell_.kind));
  PipeEnds to = make_pipe(), from = make_pipe(), words = make_pipe();
  const ChildOptions child{.standard = {to.read.get(), from.write.get(), words.write.get()},
                           .signal_mask = signal_mask};
  pid_ = start_program(program.path, command, child);
  pipe_.emplace(std::move(from.read), std::move(to.write));
  pipe_->await_greeting();
  words_fd_ = std::move(words.read);
  if (::fcntl(words_fd_.get(), F_SETFL, O_NONBLOCK) != 0) throw_system("preparing a pipe of an agent");
}

Connection::Connection(std::string host, const Socket& socket)
    : host_(std::move(host)), pipe_(MessagePipe(copy_of(socket.fd()), copy_of(socket.fd()))) {
  socket.end_when_cut(cut_network_limit);
  pipe_->await_greeting();
}

Connection::~Connection() {
  if (pid_ == 0 || wait_status_) return;
  (void)::kill(pid_, SIGKILL);
  (void)::waitpid(pid_, nullptr, 0);
}

void Connection::watch(PollSet& poll, const MessageParser::Take& take) {
  pipe_->watch(poll, take);
  if (words_fd_) poll.watch(words_fd_.get(), POLLIN, [this] { read_words(); });
}

void Connection::read_words() {
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(words_fd_.get(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) return words_fd_.reset();
  words_.append(buffer.data(), static_cast<std::size_t>(got));
  all_words_.append(buffer.data(), static_cast<std::size_t>(got));
  if (all_words_.size() > most_words) all_words_.erase(0, all_words_.size() - most_words);
}

std::string Connection::take_words() {
  const std::size_t end = words_.size() > most_words ? words_.size() : words_.rfind('\n') + 1;
  std::string taken = words_.substr(0, end);
  words_.erase(0, end);
  return taken;
}

std::string Connection::version_problem() const {
  if (version().empty() || version() == LOCKSTEP_VERSION) return "";
  return fmt::format("has Lockstep {}, this host has {}: all need the same", version(), LOCKSTEP_VERSION);
}

std::string Connection::explain_end() {
  if (has_come() && pipe_->problem().empty()) return "its launcher has ended, or the network to it is cut";
  if (has_come()) return "its launcher does not make sense: " + pipe_->problem();
  const Deadline deadline = Deadline::after(time_to_end);
  bool was_stuck = false;
  while (!wait_status_) {  // its pipe is closed, so it is about to end
    int status = 0;
    if (::waitpid(pid_, &status, deadline.expired() ? 0 : WNOHANG) == pid_) {
      wait_status_ = status;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (deadline.expired()) was_stuck = ::kill(pid_, SIGKILL) == 0;
    }
  }
  while (words_fd_) {
    const std::size_t before = all_words_.size();
    read_words();
    if (words_fd_ && all_words_.size() == before) break;
  }
  if (!pipe_->problem().empty()) return "its agent does not make sense: " + pipe_->problem();
  const bool is_here = shell_.kind == RemoteShell::Kind::none;
  const std::string ending =
      was_stuck ? " closed the connection, but did not end"
                : (WIFSIGNALED(*wait_status_) ? " was " : " ended with ") + describe(*wait_status_);
  const std::string how = (is_here ? "its agent" : shell_.command.front()) + ending;
  const std::string last = last_line_of(all_words_);
  std::string advice = advice_for(all_words_, host_, shell_.agent);
  const std::string way = shell_.by_way_of.empty() ? "" : " (by way of " + shell_.by_way_of + ")";
  // What comes before may be a banner, or of long ago: how it ended says more, unless ssh or a shell gives up with its reason.
  const bool is_reason =
      WIFEXITED(*wait_status_) && (WEXITSTATUS(*wait_status_) >= cannot_execute || !advice.empty());
  if (advice.empty() && WIFEXITED(*wait_status_) && WEXITSTATUS(*wait_status_) == 0)
    advice = "is --agent PATH (now " + shell_.agent + ") the command lockstep?";
  const std::string said = last.empty() ? how : is_reason ? last : how + ", and wrote last: " + last;
  return said + way + (advice.empty() ? "" : "; " + advice);
}

}  // namespace lockstep::launch::agents
