#include "lockstep/group/launchers.h"

#include <fmt/core.h>

#include <array>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// The variables of a launcher; nullptr where it has none such.
struct Names {
  const char* launcher = nullptr;
  const char* needed = nullptr;  ///< says that it is this launcher, beside `size`
  const char* size = nullptr;
  const char* rank = nullptr;
  const char* local_size = nullptr;
  const char* hosts = nullptr;          ///< how many there are, where local_size is not said
  std::array<const char*, 2> job = {};  ///< together the name of the job
  bool speaks_pmi2 = false;             ///< over PMI_FD; else it is PMI-1
};

constexpr std::array launchers = {
    Names{.launcher = "Open MPI",
          .size = "OMPI_COMM_WORLD_SIZE",
          .rank = "OMPI_COMM_WORLD_RANK",
          .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
          .job = {"PMIX_NAMESPACE"}},
    // Before Slurm's: inside an allocation mpiexec starts its proxies by srun.
    Names{.launcher = "mpiexec",
          .needed = "MPI_LOCALNRANKS",
          .size = "PMI_SIZE",
          .rank = "PMI_RANK",
          .local_size = "MPI_LOCALNRANKS"},
    Names{.launcher = "srun",
          .needed = "SLURM_STEP_ID",
          .size = "SLURM_STEP_NUM_TASKS",
          .rank = "SLURM_PROCID",
          .hosts = "SLURM_STEP_NUM_NODES",
          .job = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
          .speaks_pmi2 = true},
    Names{.launcher = "an MPI launcher", .size = "PMI_SIZE", .rank = "PMI_RANK"},
    Names{.launcher = "jsrun",
          .size = "JSM_NAMESPACE_SIZE",
          .rank = "JSM_NAMESPACE_RANK",
          .local_size = "JSM_NAMESPACE_LOCAL_SIZE",
          .job = {"LSB_JOBID", "JSM_NAMESPACE_ID"}},
    Names{.launcher = "flux run",
          .size = "FLUX_JOB_SIZE",
          .rank = "FLUX_TASK_RANK",
          .hosts = "FLUX_JOB_NNODES",
          .job = {"FLUX_JOB_ID"}},
    Names{.launcher = "horovodrun",
          .size = "HOROVOD_SIZE",
          .rank = "HOROVOD_RANK",
          .local_size = "HOROVOD_LOCAL_SIZE",
          .job = {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"}},
};

int number(const char* name, int least, int most, const Names& of) {
  const auto value = env::integer(name, least, most);
  if (value) return static_cast<int>(*value);
  throw_invalid_argument(
      fmt::format("{} has set {}, but not {}; start the ranks with `lockstep run -np N`, or set RANK, "
                  "WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each",
                  of.launcher, of.size, name));
}

/// Of this host. Where the launcher does not say it, all ranks are here if there is one host.
std::optional<int> local_size(const Names& names, int size) {
  if (names.local_size != nullptr) {
    const auto local = env::integer(names.local_size, 1, size);
    return local ? std::optional(static_cast<int>(*local)) : std::nullopt;
  }
  const bool is_one_host = names.hosts != nullptr && env::integer(names.hosts, 1, largest_world) == 1;
  return is_one_host ? std::optional(size) : std::nullopt;
}

std::string job(const Names& names) {
  std::string text;
  for (const char* name : names.job) {
    if (name != nullptr) text += "-" + env::text(name).value_or("");
  }
  return text.empty() ? text : text.substr(1);
}

/// A variable that only a process of some launcher has, and how that launcher is understood.
struct Sign {
  const char* variable;
  const char* remedy;
};

constexpr std::array signs = {
    Sign{"PMI_PORT", "start mpiexec without -pmi-port"},
    Sign{"PMI_ID", "start mpiexec without -pmi-port"},
    Sign{"PMI_FD", "its mpiexec sets PMI_RANK and PMI_SIZE beside it"},
    Sign{"PMIX_RANK", "start it by mpirun of Open MPI or by srun --mpi=pmix"},
    Sign{"PALS_RANKID", "load a PMI for mpiexec, which then sets PMI_RANK and PMI_SIZE"},
    Sign{"MV2_COMM_WORLD_RANK", "start it by mpiexec, which sets PMI_RANK and PMI_SIZE"},
};

/// A rank whose launcher is not understood would train alone, and its job's results would be those of one rank.
[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw_invalid_argument(
      fmt::format("{}, so this is a rank of some launcher, but how many there are is not said: {}; or start "
                  "the ranks with `lockstep run -np N`, or set RANK and WORLD_SIZE for each (1 in a world "
                  "of one)",
                  what, remedy));
}

void require_no_other_launcher() {
  for (const Names& names : launchers) {
    if (env::text(names.rank) && (names.needed == nullptr || env::text(names.needed)))
      refuse(fmt::format("{} has set {}", names.launcher, names.rank),
             fmt::format("{} is missing", names.size));
  }
  for (const Sign& sign : signs) {
    if (env::text(sign.variable)) refuse(fmt::format("{} is set", sign.variable), sign.remedy);
  }
}

}  // namespace

std::optional<LaunchedRank> find_launched_rank() {
  for (const Names& names : launchers) {
    if (names.needed != nullptr && !env::text(names.needed)) continue;
    const auto size = env::integer(names.size, 1, largest_world);
    if (!size) continue;
    LaunchedRank found{.launcher = fmt::format("{} ({} is set)", names.launcher, names.size)};
    if (*size == 1) return found;
    found.size = static_cast<int>(*size);
    found.rank = number(names.rank, 0, found.size - 1, names);
    found.local_size = local_size(names, found.size);
    found.job = job(names);
    if (const auto fd = env::integer("PMI_FD", 0, 1 << 20)) found.pmi_fd = static_cast<int>(*fd);
    if (names.speaks_pmi2 && found.pmi_fd) found.pmi2_job = env::text("PMI_JOBID").value_or("");
    return found;
  }
  require_no_other_launcher();
  return std::nullopt;
}

}  // namespace lockstep
