#include "mpitrace/left_files.h"

#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep::mpitrace {

std::string rank_file(const std::string& folder, std::string_view beginning, const std::string& job,
                      int rank) {
  return folder + "/" + std::string(beginning) + job + "." + std::to_string(rank);
}

std::vector<std::string> files_with(const std::string& folder, std::string_view beginning) {
  std::vector<std::string> found;
  std::error_code error;
  std::filesystem::directory_iterator files(folder, error);
  if (error) throw_system(folder, error.value());
  for (const auto& entry : files) {
    if (entry.path().filename().string().starts_with(beginning)) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

bool lock_left_file(int fd, const std::string& run, off_t run_at, Deadline deadline) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    std::array<char, 64> its = {};
    const bool is_told = ::pread(fd, its.data(), its.size(), run_at) == static_cast<ssize_t>(its.size());
    const bool is_ours =
        run.empty() || (is_told && run == std::string(its.data(), ::strnlen(its.data(), its.size())));
    if (!is_ours || deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace lockstep::mpitrace
