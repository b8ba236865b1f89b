#include "lockstep/base/process_status.h"

#include <fmt/core.h>

#include <charconv>
#include <filesystem>
#include <string>

#include "lockstep/base/system_file.h"

namespace lockstep::base {

// /proc/PID/stat: "PID (name, which may hold anything) STATE PARENT …".
ProcessStatus read_status(pid_t pid) {
  const std::string text = system_text(fmt::format("/proc/{}/stat", pid), 512);
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 4 >= text.size()) return {};
  ProcessStatus found;
  found.state = text[name_end + 2];
  std::from_chars(text.data() + name_end + 4, text.data() + text.size(), found.parent);
  return found;
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
