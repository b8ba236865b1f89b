#include "mpitrace/say.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace lockstep::mpitrace {

void say(const std::string& text) noexcept {
  try {
    const std::string line = "lockstep mpitrace: " + text + "\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  } catch (...) {  // no memory left to speak with
  }
}

void say_once_per_job(const std::string& text) noexcept {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"}) {
    const char* const rank = std::getenv(name);
    if (rank == nullptr) continue;
    if (std::string_view(rank) != "0") return;
    break;
  }
  say(text);
}

}  // namespace lockstep::mpitrace
