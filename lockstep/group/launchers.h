// Launchers of others (mpirun, srun, ...) tell a process which rank it is in variables of their own.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

/// Of a number of ranks that a variable says: more is a mistake.
inline constexpr int largest_world = 1 << 16;

/// What a launcher's variables say of this process.
struct LaunchedRank {
  std::string
      launcher;  ///< for messages, with the variable that gave it away: "Open MPI (OMPI_COMM_WORLD_SIZE is set)"
  int rank = 0;
  int size = 1;
  std::optional<int> local_size = {};  ///< ranks of this host; nullopt: the launcher does not say
  std::string job = {};                ///< of this job alone among those that run on the host; "": ask PMI-1
  std::optional<int> pmi_fd = {};      ///< speaks PMI
  std::string pmi2_job = {};           ///< it speaks PMI-2, and this is the job's name there

  bool is_on_one_host() const { return local_size == size; }
};

/// The first of these that says something: Open MPI's mpirun; mpiexec of MPICH and Intel MPI; a step of srun (a shell of
/// sbatch or salloc is no rank); another launcher with PMI's variables; jsrun of LSF; flux run; horovodrun. nullopt
/// where nothing says that there is one. Throws Error{invalid_argument} naming a variable that is missing beside others, or
/// makes no sense, and for a process of a launcher that is not understood.
std::optional<LaunchedRank> find_launched_rank();

}  // namespace lockstep
