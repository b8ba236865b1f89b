// The MPI of this process, and the plug-in for its ABI. One for the process, found when the engine `mpi` is chosen: the
// library that the program is linked with, or else that of the launcher which started it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "lockstep/backend/mpi/mpi_functions.h"

namespace lockstep {

class MpiLibrary {
 public:
  /// Initialises MPI, unless the program has. Throws Error: unsupported (no MPI, none that this Lockstep has a plug-in
  /// for, a thread level below serialized: Lockstep calls MPI from the thread that waits and from one of its own),
  /// invalid_argument (this process is another rank there than here).
  static std::shared_ptr<MpiLibrary> open(int rank, int ranks);
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;
  /// Finalises MPI if open() has initialised it, at the end of the process, where the others come, too: their groups were
  /// made, and none has failed.
  ~MpiLibrary();

  const MpiFunctions& functions() const { return *functions_; }
  /// Throws Error: system, what MPI says of `error`, and `what` was being done; unsupported where MPI cannot count so far.
  void check(int error, const std::string& what) const;
  /// Before a call. Throws Error{invalid_argument} where the program has finalised MPI.
  void require_not_finalized() const;
  void note_groups() { others_come_ = true; }
  void note_failure() { others_come_ = false; }
  /// "MPICH Version: 4.0.2".
  std::string version() const;

 private:
  MpiLibrary() = default;

  const MpiFunctions* functions_ = nullptr;
  bool has_initialized_ = false;
  bool others_come_ = false;
};

}  // namespace lockstep
