// From MPI_Init to MPI_Finalize: the table is made when MPI knows the ranks, and at the end all ranks learn who wrote most.
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string_view>

#include "lockstep/base/words.h"
#include "mpitrace/call.h"
#include "mpitrace/left_files.h"
#include "mpitrace/profile.h"
#include "mpitrace/run_timeline.h"
#include "mpitrace/say.h"
#include "mpitrace/settings.h"
#include "mpitrace/summary.h"
#include "mpitrace/tell_all.h"

namespace lockstep::mpitrace {

[[gnu::tls_model("initial-exec")]] constinit thread_local Thread thread = {};
constinit Period period;
constinit std::atomic<std::uint64_t> type_frees = 0, name_changes = 0;

namespace {

Settings settings;
int our_rank = 0, rank_count = 1;
std::atomic<bool> has_begun = false;
std::string job;
std::uint64_t start = 0;

/// What rank 0 says for all: ranks of different opinion would wait for one another in vain.
struct Common {
  char job[sizeof(Header::job)];
  char barriers[1024];
  char timeline[sizeof(EventsHeader::timeline)];
  std::uint64_t start;
  bool all, sites;
};

void copy(std::string_view text, char* field, std::size_t bytes) {
  std::memcpy(field, text.data(), std::min(text.size(), bytes - 1));
}

bool is_spawned() {
  MPI_Comm parent = comm_null();
  pmpi<int(MPI_Comm*)>("PMPI_Comm_get_parent")(&parent);
  return parent != comm_null();
}

/// Steps of one batch job share its name, and those that come later, or at the same time, take one that is free.
std::string free_name(const std::string& batch) {
  std::string name = batch;
  std::error_code none;
  const auto is_taken = [&] {
    return std::filesystem::exists(settings.folder + "/" + profile_name(name, 0), none) ||
           std::filesystem::exists(rank_file(settings.folder, table_beginning, name, 0), none);
  };
  for (int step = 2; is_taken() && step < 10'000; ++step) name = batch + "-" + std::to_string(step);
  return name;
}

std::string job_name() {
  const std::string batch = job_of_batch_system();
  std::string pid = std::to_string(::getpid());
  if (batch.empty()) return pid;
  return is_spawned() ? batch + "-" + pid : free_name(batch);  // a world of its own in the same job
}

/// The file for the timeline, by its whole path; "" where it cannot be.
std::string timeline_file() {
  if (settings.timeline.empty()) return "";
  std::error_code ignored;
  std::filesystem::path file = std::filesystem::absolute(settings.timeline, ignored).lexically_normal();
  if (is_spawned()) file.replace_extension("." + std::to_string(::getpid()) + file.extension().string());
  const std::string problem = file.string().size() < sizeof(Common::timeline)
                                  ? problem_with(file)
                                  : "the timeline's path is too long";
  if (!problem.empty()) say(problem + "; there will be no timeline");
  return problem.empty() ? file.string() : "";
}

void agree() {
  Common common = {};
  if (our_rank == 0) {
    copy(job_name(), common.job, sizeof(common.job));
    copy(settings.barriers, common.barriers, sizeof(common.barriers));
    copy(timeline_file(), common.timeline, sizeof(common.timeline));
    common.start = trace::now_ns() ^ static_cast<std::uint64_t>(::getpid()) << 40U;
    common.all = settings.all;
    common.sites = settings.sites;
  }
  tell_from_first(common);
  job = common.job;
  start = common.start;
  settings.timeline = common.timeline;
  settings.barriers = common.barriers;
  settings.all = common.all;
  settings.sites = common.sites;
}

void choose_barriers() {
  const std::string wanted = "," + settings.barriers + ",";
  for (const Routine& routine : routines) {
    if (routine.wait_slot < 0) continue;
    const bool is_named = wanted.find("," + std::string(routine.name) + ",") != std::string::npos;
    period.has_barrier[static_cast<std::size_t>(routine.wait_slot)] = wanted == ",yes," || is_named;
  }
}

struct Costs {
  std::uint64_t user_ns, system_ns, most_resident_bytes;
};
Costs costs_now() {
  const auto ns = [](const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(time.tv_usec) * 1000;
  };
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return {ns(usage.ru_utime), ns(usage.ru_stime), static_cast<std::uint64_t>(usage.ru_maxrss) * 1024};
}

void fill(Header& header) {
  header.version = table_version;
  header.slots = slot_count;
  header.rank = our_rank;
  header.ranks = rank_count;
  header.pid = ::getpid();
  header.has_sites = settings.sites ? 1 : 0;
  copy(job, header.job, sizeof(header.job));
  copy(settings.run, header.run, sizeof(header.run));
  const Costs costs = costs_now();
  header.user_ns_before = header.user_ns = costs.user_ns;
  header.system_ns_before = header.system_ns = costs.system_ns;
  header.most_resident_bytes = costs.most_resident_bytes;
  header.begin_ns = trace::now_ns();
  header.magic = table_magic;
}

/// A forked child counts nothing, and what its parent counts is not its own to touch.
void leave_to_parent() {
  if (period.table == nullptr) return;
  period.is_on = false;
  thread.slots = nullptr;
  thread.events = nullptr;
  if (period.events != nullptr) period.events->forget();
  period.events = nullptr;
  period.table->forget();
  period.table = nullptr;
}

void make_folder() {
  std::error_code ignored;
  std::filesystem::create_directories(settings.folder, ignored);
  settings.folder = std::filesystem::absolute(settings.folder, ignored).lexically_normal().string();
  if (settings.folder.ends_with('/') && settings.folder.size() > 1) settings.folder.pop_back();
}

void make_table() {
  std::string problem;
  const std::string path = rank_file(settings.folder, table_beginning, job, our_rank);
  period.table = Table::create(path, settings.sites, problem);
  if (!problem.empty())
    say("rank " + std::to_string(our_rank) + ": " + problem + "; the profile is lost if the rank is killed");
  if (period.table == nullptr) return;
  fill(period.table->header());
  period.has_sites = settings.sites;
  ::pthread_atfork(nullptr, nullptr, &leave_to_parent);
}

TimelineRun timeline_run() {
  return {.rank = our_rank,
          .ranks = rank_count,
          .job = job,
          .run = settings.run,
          .start = start,
          .folder = settings.folder,
          .timeline = settings.timeline};
}

/// Lets a thread's sums and events go on with another thread.
struct Leaver {
  Sums* sums = nullptr;
  ThreadEvents* events = nullptr;
  ~Leaver() {
    if (sums != nullptr && period.table != nullptr) period.table->leave(sums);
    if (events != nullptr && period.events != nullptr) period.events->leave(events);
    thread.slots = nullptr;
    thread.events = nullptr;
  }
};

void say_without_room(const char* what) {
  say("rank " + std::to_string(our_rank) + ": no room for the " + what + " of one more thread");
}

}  // namespace

void begin_period() noexcept {
  try {
    int is_initialized = 0;
    pmpi<int(int*)>("PMPI_Initialized")(&is_initialized);
    if (is_initialized == 0 || has_begun.exchange(true)) return;
    pmpi<int(MPI_Comm, int*)>("PMPI_Comm_rank")(comm_world(), &our_rank);
    pmpi<int(MPI_Comm, int*)>("PMPI_Comm_size")(comm_world(), &rank_count);
    settings = read_settings();
    if (our_rank == 0 && !settings.problems.empty()) say(settings.problems);
    make_folder();
    agree();
    choose_barriers();
    make_table();
    if (!settings.timeline.empty()) period.events = begin_timeline(timeline_run());
    period.is_on.store(period.table != nullptr, std::memory_order_release);
  } catch (const std::exception& error) {
    say(error.what());
  }
}

Sums* join() noexcept {
  try {
    static thread_local Leaver leaver;
    static std::atomic<bool> is_said = false;
    leaver.sums = period.table->join();
    if (leaver.sums == nullptr) {
      if (!is_said.exchange(true)) say_without_room("counters");
      return nullptr;
    }
    if (period.events != nullptr) {
      leaver.events = period.events->join();
      static std::atomic<bool> is_said_of_events = false;
      if (leaver.events == nullptr && !is_said_of_events.exchange(true)) say_without_room("timeline");
    }
    thread.events = leaver.events;
    return thread.slots = leaver.sums;
  } catch (...) {
    return nullptr;
  }
}

void note_costs(std::uint64_t now) noexcept {
  thread.looked_at_costs_ns = now;
  const Costs costs = costs_now();
  Header& header = period.table->header();
  store(header.user_ns, costs.user_ns);
  store(header.system_ns, costs.system_ns);
  store(header.most_resident_bytes, costs.most_resident_bytes);
}

std::uint64_t look_up_size(MPI_Datatype type, KnownType& known) {
  static const auto size_x = reinterpret_cast<int (*)(MPI_Datatype, MPI_Count*)>(find("PMPI_Type_size_x"));
  static const auto size = pmpi<int(MPI_Datatype, int*)>("PMPI_Type_size");
  if (type == datatype_null()) return 0;
  known.frees = type_frees.load(std::memory_order_relaxed) + 1;
  known.type = type;
  MPI_Count bytes = 0;
  int small = 0;
  if (size_x != nullptr) {
    size_x(type, &bytes);
  } else {
    size(type, &small);
    bytes = small;
  }
  return known.bytes = static_cast<std::uint64_t>(std::max<MPI_Count>(bytes, 0));
}

void pmpi_barrier(MPI_Comm comm) {
  static const auto barrier = pmpi<int(MPI_Comm)>("PMPI_Barrier");
  barrier(comm);
}

void end_period() noexcept {
  if (!has_begun.exchange(false)) return;  // nor twice
  period.is_on = false;
  try {
    if (period.table != nullptr) note_costs(trace::now_ns());
    const RunReport report{
        .rank = our_rank, .ranks = rank_count, .all = settings.all, .job = job, .folder = settings.folder};
    write_profiles(report, period.table);
    thread.events = nullptr;
    if (!settings.timeline.empty()) end_timeline(timeline_run(), period.events);
  } catch (const std::exception& error) {
    say("rank " + std::to_string(our_rank) + ": " + error.what());
  }
}

}  // namespace lockstep::mpitrace
