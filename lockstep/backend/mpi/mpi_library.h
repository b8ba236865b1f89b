// The MPI of this process, and the plug-in for its ABI. One for the process, found when the engine `mpi` is chosen: the
// library that the program is linked with, or else that of the launcher which started it.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "lockstep/backend/mpi/mpi_functions.h"
#include "lockstep/base/deadline.h"

namespace lockstep {

class MpiLibrary {
 public:
  /// Initialises MPI, unless the program has; a process in which that takes longer than `patience` ends with code 1, and with words
  /// on stderr, and so does MPI's end later, which leaves the code as it is. Throws Error: unsupported (no MPI, none that this Lockstep has a plug-in
  /// for, a thread level below multiple: Lockstep calls MPI from the thread that waits and from two of its own),
  /// invalid_argument (this process is another rank there than here).
  static std::shared_ptr<MpiLibrary> open(int rank, int ranks, std::chrono::nanoseconds patience);

  const MpiFunctions& functions() const { return *functions_; }
  /// Throws Error: system, what MPI says of `error`, and `what` was being done; unsupported where MPI cannot count so far.
  void check(int error, const std::string& what) const;
  /// Before a call. Throws Error{invalid_argument} where the program has finalised MPI.
  void require_not_finalized() const;
  /// A communicator of these ranks of MPI_COMM_WORLD, all of which call this; `tag` tells it from others that are made at the same
  /// time. Throws Error: timeout where that is not over at the deadline.
  void* make_comm(std::span<const int> ranks, int tag, Deadline deadline);
  void note_groups() { others_come_ = true; }
  void note_failure() { others_come_ = false; }
  /// "MPICH Version: 4.0.2".
  std::string version() const;

 private:
  MpiLibrary() = default;
  /// Finalises MPI if open() has initialised it, where the others come, too: their groups were made, and none has failed.
  void end(int exit_code) const;
  std::string said_by_rank(const char* function) const;

  const MpiFunctions* functions_ = nullptr;
  int rank_ = 0;
  std::chrono::nanoseconds patience_{};
  bool has_initialized_ = false;
  bool others_come_ = false;
};

}  // namespace lockstep
