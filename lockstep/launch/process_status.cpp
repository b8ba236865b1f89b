#include "lockstep/launch/process_status.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>

namespace lockstep::launch {

// /proc/PID/stat: "PID (name, which may hold anything) STATE PARENT …".
ProcessStatus read_status(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text(512, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 4 >= text.size()) return {};
  ProcessStatus found;
  found.state = text[name_end + 2];
  std::from_chars(text.data() + name_end + 4, text.data() + text.size(), found.parent);
  return found;
}

}  // namespace lockstep::launch
