// The socket on which MPI launchers speak with a process, whatever the words: a process inherits it as PMI_FD.
#pragma once

#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep {

/// Works on a duplicate of `fd`, and changes nothing of the connection's state: a program may use MPI, too. Errors: as
/// ProcessManager's; each begins with "PMI, " and the request.
class PmiSocket {
 public:
  /// Throws Error{invalid_argument} where `fd` is no socket.
  explicit PmiSocket(int fd);

  int fd() const { return fd_.get(); }
  /// `request` is what is said, `bytes` how it goes over the socket.
  void send(const std::string& request, const std::string& bytes, Deadline deadline) const;
  /// Up to a line's end, which is taken and left out. Not a byte more: what follows is not ours.
  std::string receive_line(const std::string& request, std::size_t most_bytes, Deadline deadline) const;
  std::string receive(const std::string& request, std::size_t bytes, Deadline deadline) const;

  [[noreturn]] static void fail(ErrorCode code, const std::string& request, const std::string& why);

 private:
  char receive_byte(const std::string& request, Deadline deadline) const;
  void wait_for(short event, const std::string& request, Deadline deadline) const;

  UniqueFd fd_;
};

/// A job's name as launchers give it. Throws Error{corrupt_data} for one that cannot be part of another name.
void require_job_name(const std::string& job, const std::string& request);

}  // namespace lockstep
