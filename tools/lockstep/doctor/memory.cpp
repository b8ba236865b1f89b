#include <fmt/core.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "examine.h"
#include "lockstep/base/system_file.h"
#include "lockstep/topology/topology.h"
#include "machine.h"

namespace doctor {
namespace {

constexpr std::chrono::milliseconds measured_time{200};
constexpr std::uint64_t most_bytes = std::uint64_t{64} << 20;  // of each of a thread's three arrays
constexpr std::uint64_t little_memory = std::uint64_t{1} << 30;

/// "12.3 GiB".
std::string gibibytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1U << 30U));
}

/// A line of /proc/meminfo, in bytes; 0 where there is none.
std::uint64_t memory_info(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name + ":")) continue;
    const std::size_t begin = line.find_first_of("0123456789");
    std::uint64_t kibibytes = 0;
    if (begin != std::string::npos)
      (void)std::from_chars(line.data() + begin, line.data() + line.size(), kibibytes);
    return kibibytes << 10U;
  }
  return 0;
}

/// Of all `threads` at once.
double triad_on(int threads, std::uint64_t bytes) {
  std::vector<double> rates(static_cast<std::size_t>(threads));
  {
    std::vector<std::jthread> workers;
    for (double& rate : rates)
      workers.emplace_back([&rate, bytes] { rate = measure::triad(bytes, measured_time); });
  }
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

void examine_huge_pages(Report& report) {
  const std::string folder = "/sys/kernel/mm/transparent_hugepage/";
  const auto chosen = [&](const char* name) {
    const std::string line = lockstep::base::system_line(folder + name);
    const std::size_t begin = line.find('['), end = line.find(']');
    return begin < end && end != std::string::npos ? line.substr(begin + 1, end - begin - 1)
                                                   : std::string("not told");
  };
  report.fact("huge pages",
              fmt::format("{} for private memory, {} for shared", chosen("enabled"), chosen("shmem_enabled")),
              "huge_pages", {{"private", chosen("enabled")}, {"shared", chosen("shmem_enabled")}});
  if (chosen("enabled") == "never") {
    report.problem(
        {.weight = 10,
         .what = "the system gives no huge pages to private memory, which costs large arrays up to a tenth",
         .remedy = "as root: echo madvise > " + folder + "enabled"});
  }
}

}  // namespace

void examine_memory(Report& report) {
  const std::uint64_t total = memory_info("MemTotal"), available = memory_info("MemAvailable");
  report.section("Memory", "memory");
  report.fact("main memory", gibibytes(available) + " of " + gibibytes(total) + " are free", "bytes",
              {{"total", total}, {"available", available}});
  const int threads = lockstep::topology::available_cores();
  const std::uint64_t each = std::min(most_bytes, available / 8 / 3 / static_cast<std::uint64_t>(threads));
  if (each > 0) {
    const double rate = triad_on(threads, each);
    report.fact("bandwidth", fmt::format("{:.1f} GB/s (a triad on {} cores at once)", rate * 1e-9, threads),
                "bandwidth_bytes_per_s", rate);
  }
  examine_huge_pages(report);
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) {
    const std::uint64_t size = shm.f_blocks * shm.f_frsize, left = shm.f_bavail * shm.f_frsize;
    report.fact("/dev/shm",
                gibibytes(left) + " of " + gibibytes(size) + " are free (Lockstep does not need it)", "shm",
                {{"bytes", size}, {"free", left}});
  } else {
    report.fact("/dev/shm", "is not there (Lockstep does not need it)", "shm", nullptr);
  }
  if (available < little_memory) {
    report.problem(
        {.weight = 60,
         .what = "only " + gibibytes(available) + " of memory are free",
         .remedy = "end what else runs here, or take a machine or an allocation (--mem) with more"});
  }
}

}  // namespace doctor
