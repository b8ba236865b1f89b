#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "examine.h"
#include "lockstep/base/system_file.h"
#include "lockstep/base/words.h"
#include "lockstep/topology/topology.h"

namespace doctor {
namespace {

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name") && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  }
  return "unknown";
}

/// Nodes that have cores.
int numa_nodes() {
  int count = 0;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry("/sys/devices/system/node", ignored), end; entry != end;
       entry.increment(ignored)) {
    const bool is_node = entry->path().filename().string().starts_with("node");
    count += is_node && !lockstep::base::system_line(entry->path() / "cpulist").empty() ? 1 : 0;
  }
  return count;
}

/// Whether there is AVX-512, and what MKL, by which libtorch multiplies matrices on most processors, makes of it.
void examine_avx512(Report& report) {
  bool has = false, is_intel = true;
#ifdef __x86_64__
  __builtin_cpu_init();
  has = __builtin_cpu_supports("avx512f") != 0;
  is_intel = __builtin_cpu_is("intel") != 0;
#endif
  const char* of_others =
      "yes; MKL takes AVX2 on processors that are not Intel's: try lockstep run --mkl-avx512";
  report.fact("AVX-512", !has ? "no" : (is_intel ? "yes" : of_others), "avx512", has);
}

}  // namespace

void examine_cores(Report& report) {
  const auto cores = lockstep::topology::find_cores();
  const auto all = static_cast<std::size_t>(::sysconf(_SC_NPROCESSORS_ONLN));
  const int nodes = numa_nodes();
  report.section("Processor", "processor");
  report.fact("model", processor(), "model", processor());
  examine_avx512(report);
  report.fact("cores",
              fmt::format("{} of {} (hardware threads), those numbered {}", cores.numbers.size(), all,
                          lockstep::base::to_ranges(cores.numbers)),
              "cores", cores.numbers);
  report.fact("quota", cores.quota ? fmt::format("{} at once (cgroup)", *cores.quota) : "none", "quota",
              cores.quota ? nlohmann::ordered_json(*cores.quota) : nlohmann::ordered_json());
  report.fact("NUMA nodes", nodes == 0 ? "not told" : std::to_string(nodes), "numa_nodes", nodes);
  if (cores.quota && *cores.quota < static_cast<int>(cores.numbers.size())) {
    report.problem(
        {.weight = 40,
         .what = fmt::format("a cgroup lets {} run at once, but shows {}: ranks are not pinned",
                             lockstep::base::counted(*cores.quota, "core"), cores.numbers.size()),
         .remedy = "give the container cores of its own (docker run --cpuset-cpus) in place of a quota"});
  }
  if (cores.numbers.size() < all && cores.numbers.size() == 1) {
    report.problem({.weight = 50,
                    .what = fmt::format("of {} cores this process may use one", all),
                    .remedy = "ask the batch system for more (--cpus-per-task), or start without taskset"});
  }
}

}  // namespace doctor
