#include "lockstep/rendezvous/file_board.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep {
namespace {

// A shared file system shows a new file when it likes: nothing tells us.
constexpr std::chrono::milliseconds between_looks{20};

/// nullopt: it is not there yet.
std::optional<std::string> read_own(const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) throw_system("opening " + path.string());
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw_system("looking at " + path.string());
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077U) != 0) {
    throw_invalid_argument(
        path.string() +
        " holds the job's secret, and is not this user's alone: remove it, and take another folder "
        "as LOCKSTEP_MEETING_DIR if it comes again");
  }
  std::array<char, FileBoard::most_bytes + 1> text{};
  const ssize_t got = ::read(fd.get(), text.data(), text.size());
  if (got < 0) throw_system("reading " + path.string());
  if (got > static_cast<ssize_t>(FileBoard::most_bytes) || got == 0 ||
      text[static_cast<std::size_t>(got) - 1] != '\n')
    throw Error(ErrorCode::corrupt_data, path.string() + " is no meeting place");
  return std::string(text.data(), static_cast<std::size_t>(got) - 1);
}

}  // namespace

FileBoard::FileBoard(const std::filesystem::path& folder, std::string job)
    : folder_(folder), job_(std::move(job)), path_(folder / ("lockstep-" + job_)) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder_, ignored)) {
    throw_invalid_argument(
        "LOCKSTEP_MEETING_DIR=" + folder_.string() +
        " is no folder here; it has to be there on every host of the job, and the same one");
  }
}

FileBoard::~FileBoard() {
  if (is_ours_) (void)::unlink(path_.c_str());
}

std::string FileBoard::job(Deadline) { return job_; }

void FileBoard::put(const std::string& key, const std::string& value, Deadline) {
  const std::string text = key + "=" + value + "\n";
  const std::filesystem::path temporary = path_.string() + fmt::format(".{}", ::getpid());
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) throw_system("making " + temporary.string() + " (LOCKSTEP_MEETING_DIR)");
  const bool is_written = ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                          ::fsync(fd.get()) == 0 && ::rename(temporary.c_str(), path_.c_str()) == 0;
  const int problem = errno;
  if (!is_written) {
    (void)::unlink(temporary.c_str());
    throw_system("writing " + path_.string() + " (LOCKSTEP_MEETING_DIR)", problem);
  }
  is_ours_ = true;
}

void FileBoard::fence(Deadline) {}

std::string FileBoard::get(const std::string& key, Deadline deadline) {
  for (;;) {
    if (const auto text = read_own(path_)) {
      const std::string beginning = key + "=";
      if (text->starts_with(beginning)) return text->substr(beginning.size());
      throw Error(ErrorCode::corrupt_data, path_.string() + " is no meeting place");
    }
    if (deadline.expired()) {
      throw Error(ErrorCode::timeout,
                  path_.string() +
                      ", where rank 0 says where to meet, did not come: has it begun, and is this the "
                      "same folder on all hosts?");
    }
    std::this_thread::sleep_for(between_looks);
  }
}

}  // namespace lockstep
