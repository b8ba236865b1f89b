#include "lockstep/topology/gpus.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <system_error>

#include "lockstep/base/env.h"
#include "lockstep/base/split.h"

namespace lockstep::topology {
namespace {

bool is_device(const std::string& name) {
  const std::string begin = "nvidia";
  return name.size() > begin.size() && name.starts_with(begin) &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(begin.size()), name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

int devices() {
  int count = 0;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry("/dev", ignored), end; entry != end;
       entry.increment(ignored))
    count += is_device(entry->path().filename()) ? 1 : 0;
  return count;
}

}  // namespace

int visible_gpus() {
  const auto visible = env::text("CUDA_VISIBLE_DEVICES");
  if (!visible) return devices();
  int count = 0;  // CUDA ends the list at the first one that is none
  for (const std::string& one : base::split(*visible, ',')) {
    if (one.empty() || one.front() == '-') break;
    ++count;
  }
  return std::min(count, devices());
}

}  // namespace lockstep::topology
