#include "lockstep/base/process_status.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>

#include "lockstep/base/system_file.h"

namespace lockstep::base {

namespace {

/// /proc/PID/stat: "PID (name, which may hold anything) STATE PARENT …": from STATE on; "" of none.
std::string stat_of(pid_t pid) {
  const std::string text = system_text(fmt::format("/proc/{}/stat", pid), 1024);
  const std::size_t name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 4 >= text.size() ? "" : text.substr(name_end + 2);
}

}  // namespace

ProcessStatus read_status(pid_t pid) {
  const std::string text = stat_of(pid);
  if (text.empty()) return {};
  ProcessStatus found{.state = text[0]};
  std::from_chars(text.data() + 2, text.data() + text.size(), found.parent);
  return found;
}

// proc(5) counts utime as the 14th field, stime as the 15th, rss as the 24th; the state is the third.
ProcessUse read_use(pid_t pid) {
  std::istringstream fields(stat_of(pid));
  const std::vector<std::string> words{std::istream_iterator<std::string>(fields), {}};
  const auto number = [&](std::size_t field) {
    std::uint64_t value = 0;
    if (field - 3 < words.size()) {
      const std::string& word = words[field - 3];
      std::from_chars(word.data(), word.data() + word.size(), value);
    }
    return value;
  };
  const auto tick_ns = 1'000'000'000 / static_cast<std::uint64_t>(std::max(::sysconf(_SC_CLK_TCK), 1L));
  return {.resident_bytes = number(24) * static_cast<std::uint64_t>(std::max(::sysconf(_SC_PAGESIZE), 1L)),
          .user_ns = number(14) * tick_ns,
          .system_ns = number(15) * tick_ns};
}

// The kernel's Documentation/scheduler/sched-stats.rst: time on a core, time on a run queue (both ns), turns.
CoreTimes own_core_times() {
  CoreTimes all;
  for (const int thread : numbers_in("/proc/self/task")) {
    std::istringstream fields(system_text(fmt::format("/proc/self/task/{}/schedstat", thread), 128));
    std::uint64_t on_core = 0, on_queue = 0;
    if (!(fields >> on_core >> on_queue)) continue;
    all.on_core_ns += on_core;
    all.waited_ns += on_queue;
  }
  return all;
}

std::vector<int> numbers_in(const std::string& folder) {
  std::vector<int> numbers;
  std::error_code ignored;  // a process that ends while we look, or no /proc
  for (std::filesystem::directory_iterator entry(folder, ignored), end; entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename();
    int number = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), number);
    if (parsed.ec == std::errc() && parsed.ptr == name.data() + name.size()) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace lockstep::base
