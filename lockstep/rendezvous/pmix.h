// PMIx, as mpirun of Open MPI and Slurm's `srun --mpi=pmix` offer it: not a socket whose protocol one could speak, but a library
// that has to fit the launcher's, and is loaded when it is needed.
#pragma once

#include <memory>
#include <string>

#include "lockstep/rendezvous/process_manager.h"

namespace lockstep {

/// Only rank 0 may put: get() asks for what it has put.
class Pmix final : public ProcessManager {
 public:
  /// This process's launcher offers it (PMIX_NAMESPACE is set).
  static bool is_offered();

  /// Takes the library that is in this process already, as in programs with Open MPI; else the one that a process above this one
  /// has, which is the launcher's as a rule; else the system's. Waits for the launcher. Throws Error{unsupported} where there is
  /// none, saying which package has it; system where it refuses.
  Pmix();
  ~Pmix() override;

  std::string job(Deadline deadline) override;
  void put(const std::string& key, const std::string& value, Deadline deadline) override;
  void fence(Deadline deadline) override;
  std::string get(const std::string& key, Deadline deadline) override;

 private:
  class Library;
  std::unique_ptr<Library> library_;
};

namespace detail {
/// The path of a libpmix.so in the text of a /proc/PID/maps; "": there is none.
std::string pmix_among(const std::string& maps);
}  // namespace detail

}  // namespace lockstep
