#include "lockstep/rendezvous/pmi_socket.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>

#include "lockstep/base/quote.h"

namespace lockstep {

using base::quote;

PmiSocket::PmiSocket(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) {
    throw_invalid_argument(
        fmt::format("PMI_FD={} is no socket of this process; was it started by mpiexec, and were its "
                    "descriptors left open?",
                    fd));
  }
  fd_ = UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!fd_) throw_system("PMI_FD");
}

void PmiSocket::fail(ErrorCode code, const std::string& request, const std::string& why) {
  throw Error(code, fmt::format("PMI, {}: {}", quote(request.substr(0, request.find_first_of(" ;"))), why));
}

void PmiSocket::send(const std::string& request, const std::string& bytes, Deadline deadline) const {
  for (std::string_view rest = bytes; !rest.empty();) {
    const ssize_t sent = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      rest.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      wait_for(POLLOUT, request, deadline);
    } else if (errno != EINTR) {
      fail(ErrorCode::peer_lost, request, "the launcher has closed the connection");
    }
  }
}

std::string PmiSocket::receive_line(const std::string& request, std::size_t most_bytes,
                                    Deadline deadline) const {
  std::string line;
  while (line.size() <= most_bytes) {
    const char byte = receive_byte(request, deadline);
    if (byte == '\n') return line;
    line += byte;
  }
  fail(ErrorCode::corrupt_data, request,
       fmt::format("the launcher's answer has more than {} bytes", most_bytes));
}

std::string PmiSocket::receive(const std::string& request, std::size_t bytes, Deadline deadline) const {
  std::string text;
  while (text.size() < bytes) text += receive_byte(request, deadline);
  return text;
}

char PmiSocket::receive_byte(const std::string& request, Deadline deadline) const {
  while (true) {
    char byte = 0;
    const ssize_t got = ::recv(fd_.get(), &byte, 1, MSG_DONTWAIT);
    if (got == 1) return byte;
    if (got == 0 || (errno != EAGAIN && errno != EINTR))
      fail(ErrorCode::peer_lost, request, "the launcher has closed the connection");
    wait_for(POLLIN, request, deadline);
  }
}

void PmiSocket::wait_for(short event, const std::string& request, Deadline deadline) const {
  pollfd waited{.fd = fd_.get(), .events = event, .revents = 0};
  if (deadline.expired()) {
    fail(ErrorCode::timeout, request,
         "the launcher did not answer before the deadline; have all ranks come to init(), and is mpiexec "
         "still there?");
  }
  static_cast<void>(::poll(&waited, 1, deadline.poll_milliseconds(std::chrono::milliseconds(250))));
}

void require_job_name(const std::string& job, const std::string& request) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_.@").find(c) != std::string_view::npos;
  };
  if (job.empty() || job.size() > 256 || !std::ranges::all_of(job, is_allowed))
    PmiSocket::fail(ErrorCode::corrupt_data, request, "the job is called " + quote(job));
}

}  // namespace lockstep
