#include "lockstep/backend/mpi/mpi_library.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>
#include <vector>

#include "lockstep/backend/forked.h"
#include "lockstep/backend/mpi/blocking_calls.h"
#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/mpi_family.h"
#include "lockstep/base/process_status.h"
#include "lockstep/kernel/reduce.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int multiple = 3;
constexpr const char* thread_levels[] = {"single", "funneled", "serialized", "multiple"};

[[noreturn]] void refuse(ErrorCode code, const std::string& why) { throw Error(code, "engine mpi: " + why); }

std::string why_not_loaded() {
  const char* const text = ::dlerror();
  return text != nullptr ? text : "the loader does not say why";
}

/// Open MPI's mpirun, MPICH's mpiexec: the family of whoever started this process, as its variables say.
std::optional<mpi::Family> family_of_launcher() {
  if (env::text("OMPI_COMM_WORLD_SIZE")) return mpi::Family::openmpi;
  if (env::text("PMI_RANK") || env::text("PMI_FD") || env::text("PMI_PORT")) return mpi::Family::mpich;
  return std::nullopt;
}

/// Where a launcher's own library is most likely: beside the programs above this one.
std::vector<std::string> beside_launchers(std::string_view library) {
  constexpr int most_ancestors = 16;
  std::vector<std::string> paths;
  pid_t pid = ::getppid();
  for (int i = 0; i < most_ancestors && pid > 1; ++i, pid = base::read_status(pid).parent) {
    std::error_code problem;
    const fs::path program = fs::read_symlink(fmt::format("/proc/{}/exe", pid), problem);
    if (problem) continue;
    const fs::path path = program.parent_path().parent_path() / "lib" / library;
    if (fs::exists(path, problem)) paths.push_back(path.string());
  }
  return paths;
}

/// All of its names have to be seen by its own parts, and by the plug-in.
bool load(const std::string& path, int more = 0) {
  return ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL | more) != nullptr;
}

/// Sees to it that an MPI is in the process.
mpi::Family find_mpi() {
  if (const auto loaded = mpi::loaded_mpis(); !loaded.empty()) {
    (void)load(loaded.front().path, RTLD_NOLOAD);
    return loaded.front().family;
  }
  if (const auto path = env::text("LOCKSTEP_MPI_LIBRARY")) {
    const auto family = mpi::family_of_library(*path);
    if (!family)
      refuse(ErrorCode::unsupported,
             "LOCKSTEP_MPI_LIBRARY=" + *path +
                 " is no library of an MPI: libmpi.so.40 is one of "
                 "Open MPI, libmpi.so.12 of MPICH and Intel MPI, libmpi_abi.so.1 of MPI 5's standard ABI");
    if (!load(*path)) refuse(ErrorCode::unsupported, "LOCKSTEP_MPI_LIBRARY: " + why_not_loaded());
    return *family;
  }
  const auto family = family_of_launcher();
  if (!family) {
    refuse(ErrorCode::unsupported,
           "this process was not started by the launcher of an MPI (mpirun, mpiexec, srun --mpi) that it "
           "knows, and the "
           "program is not linked with one; start it by one, or take the engine native");
  }
  std::string why;
  for (const std::string& name : mpi::libraries_of(*family)) {
    if (load(name)) return *family;
    why += (why.empty() ? "" : "; ") + why_not_loaded();
    for (const std::string& path : beside_launchers(name)) {
      if (load(path)) return *family;
      why += "; " + why_not_loaded();
    }
  }
  refuse(ErrorCode::unsupported, "cannot load the MPI whose launcher started this process (" +
                                     std::string(mpi::title_of(*family)) + "): " + why +
                                     "; LOCKSTEP_MPI_LIBRARY says where it is");
}

/// Beside the core, or in a folder lib beside the program's.
const MpiFunctions* load_plugin(mpi::Family family) {
  const std::string file = "liblockstep_mpi_" + std::string(mpi::name_of(family)) + ".so";
  Dl_info info{};
  std::vector<fs::path> folders;
  if (::dladdr(reinterpret_cast<void*>(&load_plugin), &info) != 0 && info.dli_fname != nullptr)
    folders.push_back(fs::path(info.dli_fname).parent_path());
  std::error_code problem;
  folders.push_back(fs::read_symlink("/proc/self/exe", problem).parent_path().parent_path() / "lib");
  std::string why;
  for (const fs::path& folder : folders) {
    void* const plugin = ::dlopen((folder / file).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) {
      why += (why.empty() ? "" : "; ") + why_not_loaded();
      continue;
    }
    const auto* const functions = static_cast<const MpiFunctions*>(::dlsym(plugin, MpiFunctions::symbol));
    if (functions == nullptr || functions->version != MpiFunctions::current_version)
      refuse(ErrorCode::unsupported, (folder / file).string() + " belongs to another version of Lockstep");
    return functions;
  }
  refuse(ErrorCode::unsupported,
         "cannot load the plug-in for " + std::string(mpi::title_of(family)) + ": " + why);
}

/// Few MPIs understand another one's launcher; most end the process, with words of their own, and some think that they are alone.
void warn_of_another_launcher(mpi::Family family) {
  const auto launcher = family_of_launcher();
  const bool may_be_any = !launcher || family == mpi::Family::standard || env::text("SLURM_STEP_ID");
  if (may_be_any || family == *launcher) return;
  log::warning(
      fmt::format("engine mpi: the MPI in this process is {}, but its launcher is that of {}: if it ends "
                  "now, or says that "
                  "it is alone, start the job by its own launcher",
                  mpi::title_of(family), mpi::title_of(*launcher)));
}

void reduce(int dtype, int reduce_op, const void* left, void* right, std::size_t elements) {
  const std::byte* sources[] = {static_cast<const std::byte*>(left), static_cast<const std::byte*>(right)};
  std::byte* destination = static_cast<std::byte*>(right);
  kernel::reduce(static_cast<Dtype>(dtype), static_cast<ReduceOp>(reduce_op), elements, sources,
                 std::span(&destination, 1));
}

}  // namespace

std::shared_ptr<MpiLibrary> MpiLibrary::open(int rank, int ranks, std::chrono::nanoseconds patience) {
  // MPI can be initialised once in a process, and so it serves all worlds, until the process ends.
  static std::shared_ptr<MpiLibrary> kept;
  if (kept && kept->functions().is_finalized() == 0) return kept;
  std::shared_ptr<MpiLibrary> made(new MpiLibrary());
  const mpi::Family family = find_mpi();
  made->functions_ = load_plugin(family);
  made->rank_ = rank;
  made->patience_ = patience;
  const MpiFunctions& functions = made->functions();
  if (functions.is_finalized() != 0)
    refuse(ErrorCode::invalid_argument, "the program has called MPI_Finalize() before lockstep::init()");
  const bool was_initialized = functions.is_initialized() != 0;
  if (!was_initialized) warn_of_another_launcher(family);
  int level = 0;
  const auto begin = [&] { return functions.begin(reduce, &level); };
  made->check(mpi::call_or_end(made->said_by_rank("MPI_Init_thread"), Deadline::after(patience), 1, begin),
              "MPI_Init_thread");
  made->has_initialized_ = !was_initialized;
  if (level < multiple) {
    refuse(
        ErrorCode::unsupported,
        fmt::format(
            "MPI has the thread level {}, but Lockstep calls it from whichever thread waits, and from two of "
            "its own: {}",
            thread_levels[level],
            was_initialized ? "the program has to ask for it, MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...)"
                            : "this MPI (" + made->version() + ") gives no more"));
  }
  int there = 0, all = 0;
  made->check(functions.place(&there, &all), "MPI_Comm_rank");
  if (there != rank || all != ranks) {
    refuse(ErrorCode::invalid_argument, fmt::format("this process is rank {} of {}, but rank {} of {} for "
                                                    "MPI: all processes of the job have to be started "
                                                    "by the same launcher of that MPI",
                                                    rank, ranks, there, all));
  }
  if (made->has_initialized_) {
    kept = made;
    // Before what MPI itself does at the end, which was there first.
    (void)::on_exit([](int exit_code, void*) { kept->end(exit_code); }, nullptr);
  }
  return made;
}

void MpiLibrary::end(int exit_code) const {
  if (is_forked_child()) return;  // it has copies of the parent's connections
  if (!has_initialized_ || !others_come_ || functions_->is_finalized() != 0) return;
  try {
    mpi::call_or_end(said_by_rank("MPI_Finalize"), Deadline::after(patience_), exit_code,
                     functions_->finalize);
  } catch (const Error&) {  // no room for a thread
    (void)functions_->finalize();
  }
}

std::string MpiLibrary::said_by_rank(const char* function) const {
  return fmt::format("rank {}: {}", rank_, function);
}

void* MpiLibrary::make_comm(std::span<const int> ranks, int tag, Deadline deadline) {
  // Of the thread, which may outlast this call.
  struct Making {
    std::vector<int> ranks;
    void* comm = nullptr;
  };
  const auto making = std::make_shared<Making>(Making{.ranks = {ranks.begin(), ranks.end()}});
  constexpr const char* function = "MPI_Comm_create_group";
  try {
    const int error = mpi::call_until(function, deadline, [making, tag, functions = functions_] {
      return functions->make_comm(making->ranks.data(), static_cast<int>(making->ranks.size()), tag,
                                  &making->comm);
    });
    check(error, function);
  } catch (...) {
    note_failure();
    throw;
  }
  return making->comm;
}

std::string MpiLibrary::version() const {
  std::array<char, 256> text{};
  functions_->library_version(text.data(), text.size());
  return text.data();
}

void MpiLibrary::check(int error, const std::string& what) const {
  if (error == 0) return;
  if (error == MpiFunctions::too_many) {
    refuse(ErrorCode::unsupported,
           what +
               ": a block, or where it begins, has more elements than MPI can count (2^31); send "
               "it in parts, or take the engine native");
  }
  std::array<char, 512> text{};
  functions_->describe(error, text.data(), text.size());
  refuse(ErrorCode::system, what + ": " + text.data());
}

void MpiLibrary::require_not_finalized() const {
  if (functions_->is_finalized() != 0)
    refuse(ErrorCode::invalid_argument,
           "the program has called MPI_Finalize() while Lockstep still uses MPI");
}

}  // namespace lockstep
