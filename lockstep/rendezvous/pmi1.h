// PMI-1, the process manager interface of MPICH's and Intel MPI's mpiexec: lines of "name=value" over a socket that a
// process inherits as PMI_FD. docs/wire_formats.md has the lines that are used here.
#pragma once

#include <map>
#include <string>

#include "lockstep/rendezvous/pmi_socket.h"
#include "lockstep/rendezvous/process_manager.h"

namespace lockstep {

/// The fields of an answer, "cmd=get_result rc=0 value=a": of the first `cmd`. Throws Error{corrupt_data} where it is none:
/// other bytes than printable ones, a field without '=', one that comes twice, a line of more than most_line_bytes.
std::map<std::string, std::string> parse_pmi1(const std::string& line);

class Pmi1 final : public ProcessManager {
 public:
  static constexpr std::size_t most_line_bytes = 8192;

  /// Speaks on a duplicate of `fd`, so that a program may use MPI, too, before or after: nothing of the connection's
  /// state is changed, and no more is read than what answers. The launcher takes a process whose connection ends without a
  /// word for a failed one, so "finalize" is said at the process's end, unless MPI has said it.
  /// Throws Error{invalid_argument} where `fd` is no socket.
  explicit Pmi1(int fd);

  std::string job(Deadline deadline) override;
  void put(const std::string& key, const std::string& value, Deadline deadline) override;
  void fence(Deadline deadline) override;
  std::string get(const std::string& key, Deadline deadline) override;

 private:
  using Answer = std::map<std::string, std::string>;
  /// The answer to `request`, which is to be of this `cmd`.
  Answer ask(const std::string& request, const std::string& cmd, Deadline deadline);

  PmiSocket socket_;
  std::string job_;
};

}  // namespace lockstep
