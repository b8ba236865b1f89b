#include "lockstep/rendezvous/pmi1.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/mpi_family.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

using base::quote;

/// The launcher's socket of this process, for its last word: at exit, when nothing else can go wrong any more.
struct LastWord {
  UniqueFd fd;
  pid_t pid = 0;
};

LastWord& last_word() {
  static auto* const word = new LastWord;  // outlives whatever else ends at exit
  return *word;
}

void say_finalize() {
  const LastWord& word = last_word();
  if (word.pid != ::getpid()) return;  // a child's exit is not the rank's
  // MPI says it itself, maybe only after this, and is killed where the launcher has hung up.
  if (mpi::has_begun()) return;
  constexpr std::string_view line = "cmd=finalize\n";
  if (::send(word.fd.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
  // The launcher must have read it before the connection ends.
  pollfd answer{.fd = word.fd.get(), .events = POLLIN, .revents = 0};
  static_cast<void>(::poll(&answer, 1, 2000));
}

void finalize_at_exit(int fd) {
  if (last_word().pid == ::getpid()) return;
  last_word() = {UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)), ::getpid()};
  static const int registered = std::atexit(say_finalize);
  static_cast<void>(registered);
}

}  // namespace

std::map<std::string, std::string> parse_pmi1(const std::string& line) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::corrupt_data, "PMI: the launcher answers " + quote(line) + ", which " + why);
  };
  if (line.size() > Pmi1::most_line_bytes) refuse("is too long");
  if (!std::ranges::all_of(line, [](char c) { return c >= ' ' && c <= '~'; })) refuse("is no text");
  std::map<std::string, std::string> fields;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    if (equals == std::string::npos || equals == 0) refuse("is not made of names and values");
    if (!fields.emplace(word.substr(0, equals), word.substr(equals + 1)).second)
      refuse("says something twice");
  }
  if (!fields.contains("cmd")) refuse("has no cmd");
  return fields;
}

Pmi1::Pmi1(int fd) : socket_(fd) { finalize_at_exit(socket_.fd()); }

std::string Pmi1::job(Deadline deadline) {
  if (job_.empty()) {
    job_ = ask("cmd=get_my_kvsname", "my_kvsname", deadline)["kvsname"];
    require_job_name(job_, "cmd=get_my_kvsname");
  }
  return job_;
}

void Pmi1::put(const std::string& key, const std::string& value, Deadline deadline) {
  const Answer answer = ask(fmt::format("cmd=put kvsname={} key={} value={}", job(deadline), key, value),
                            "put_result", deadline);
  if (const auto rc = answer.find("rc"); rc != answer.end() && rc->second != "0")
    PmiSocket::fail(ErrorCode::system, "cmd=put",
                    fmt::format("the launcher does not take {} (rc={})", quote(key), rc->second));
}

void Pmi1::fence(Deadline deadline) { ask("cmd=barrier_in", "barrier_out", deadline); }

std::string Pmi1::get(const std::string& key, Deadline deadline) {
  const Answer answer =
      ask(fmt::format("cmd=get kvsname={} key={}", job(deadline), key), "get_result", deadline);
  const auto rc = answer.find("rc"), value = answer.find("value");
  if (value == answer.end() || (rc != answer.end() && rc->second != "0"))
    PmiSocket::fail(ErrorCode::mismatch, "cmd=get", "no rank has put " + quote(key));
  return value->second;
}

Pmi1::Answer Pmi1::ask(const std::string& request, const std::string& cmd, Deadline deadline) {
  socket_.send(request, request + "\n", deadline);
  Answer answer = parse_pmi1(socket_.receive_line(request, most_line_bytes, deadline));
  if (answer["cmd"] != cmd)
    PmiSocket::fail(ErrorCode::corrupt_data, request,
                    "the launcher answers " + quote(answer["cmd"]) + " instead of " + cmd);
  return answer;
}

}  // namespace lockstep
