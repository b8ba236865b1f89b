// PMI-2, as Slurm's `srun --mpi=pmi2` speaks it over PMI_FD: "name=value;" after a length of six digits.
// docs/wire_formats.md has the messages that are used here.
#pragma once

#include <map>
#include <string>

#include "lockstep/rendezvous/pmi_socket.h"
#include "lockstep/rendezvous/process_manager.h"

namespace lockstep {

/// The fields of an answer, "cmd=kvs-get-response;found=TRUE;value=a;rc=0;". Throws Error{corrupt_data} where it is none: other
/// bytes than printable ones, a field without '=' or ';', one that comes twice, no cmd, more than most_message_bytes.
std::map<std::string, std::string> parse_pmi2(const std::string& message);

class Pmi2 final : public ProcessManager {
 public:
  static constexpr std::size_t most_message_bytes = 65536;

  /// `job`: PMI_JOBID. A process says once which version it speaks, and MPI's own start does that, too: with `is_begun` it has
  /// done so. Throws Error{invalid_argument} where `fd` is no socket.
  Pmi2(int fd, std::string job, bool is_begun);

  std::string job(Deadline deadline) override;
  void put(const std::string& key, const std::string& value, Deadline deadline) override;
  void fence(Deadline deadline) override;
  std::string get(const std::string& key, Deadline deadline) override;

 private:
  using Answer = std::map<std::string, std::string>;
  void begin(Deadline deadline);
  /// The answer to `request`, which begins with "cmd=NAME;".
  Answer ask(const std::string& request, const std::string& name, Deadline deadline);

  PmiSocket socket_;
  const std::string job_;
  bool is_begun_;
};

}  // namespace lockstep
