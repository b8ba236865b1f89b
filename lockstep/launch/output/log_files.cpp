#include "lockstep/launch/output/log_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "lockstep/launch/limits.h"

namespace lockstep::launch {
namespace {

UniqueFd open_to_append(const std::filesystem::path& path, int more_flags) {
  return UniqueFd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | more_flags, 0666));
}

std::string reason(int error_number) {
  return std::generic_category().message(error_number) + limit_hint(error_number);
}

}  // namespace

std::filesystem::path LogFiles::path_of(int rank, PrintStream stream, int ranks) const {
  const std::filesystem::path folder = options_.folder;
  const char* name = stream == PrintStream::out ? "stdout" : "stderr";
  if (options_.layout == OutputOptions::Layout::horovodrun) {
    const auto digits = std::to_string(ranks - 1).size();
    return folder / fmt::format("rank.{:0{}}", rank, digits) / name;
  }
  return folder / run_ / fmt::format("attempt_{}", restarts_) / std::to_string(rank) /
         (std::string(name) + ".log");
}

void LogFiles::make(const RankPlace& place, int ranks) {
  for (const PrintStream stream : {PrintStream::out, PrintStream::err}) {
    const bool is_wanted =
        options_.redirected.has(place.local_rank, stream) || options_.teed.has(place.local_rank, stream);
    if (options_.folder.empty() || !is_wanted || !problem_.empty()) continue;
    const std::filesystem::path path = path_of(place.rank, stream, ranks);
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    if (error) return fail(path.parent_path(), error.message());
    if (!open_to_append(path, restarts_ == 0 ? O_TRUNC : 0)) return fail(path, reason(errno));
    files_[{place.rank, stream}] = {.path = path};
  }
}

std::string LogFiles::new_folder() const {
  const bool is_new = options_.layout == OutputOptions::Layout::torchrun && restarts_ == 0 && !files_.empty();
  return is_new ? (std::filesystem::path(options_.folder) / run_).string() : "";
}

bool LogFiles::write(int rank, PrintStream stream, std::string_view bytes) {
  const auto found = files_.find({rank, stream});
  if (found == files_.end() || bytes.empty()) return found != files_.end();
  File& file = found->second;
  if (!file.fd) file.fd = open_to_append(file.path, 0);
  while (file.fd && !bytes.empty()) {
    const ssize_t written = ::write(file.fd.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) break;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  if (file.fd && bytes.empty()) return true;
  fail(std::filesystem::path(file.path), reason(errno));
  return false;
}

void LogFiles::fail(const std::filesystem::path& path, const std::string& why) {
  files_.clear();
  problem_ = fmt::format("cannot write to {}: {}; what ranks print from here on is shown, and in no file",
                         path.string(), why);
}

}  // namespace lockstep::launch
