#include "lockstep/base/file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <random>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/write.h"

namespace lockstep {
namespace {

constexpr const char* temporary_mark = ".tmp-";

std::string unique_suffix() {
  std::array<char, 16> hex{};
  std::snprintf(hex.data(), hex.size(), "%08x", std::random_device()());
  return fmt::format("{}{}-{}", temporary_mark, ::getpid(), hex.data());
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

bool sync_folder_of(const std::filesystem::path& path) {
  const UniqueFd folder(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A file system that cannot sync folders says EINVAL.
  return folder && (::fsync(folder.get()) == 0 || errno == EINVAL);
}

/// A process that cleans up may find the file between its making and its locking, and remove it.
bool is_still_linked(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && status.st_nlink > 0;
}

/// "<file>.tmp-<pid>-<8 hex digits>"
bool is_temporary_of(const std::string& name, const std::string& file) {
  const std::string start = file + temporary_mark;
  if (!name.starts_with(start)) return false;
  const std::string rest = name.substr(start.size());
  const auto dash = rest.find('-');
  return dash != std::string::npos && dash > 0 && rest.find_first_not_of("0123456789") == dash &&
         rest.size() == dash + 9 && rest.find_first_not_of("0123456789abcdef", dash + 1) == std::string::npos;
}

/// Why `path` cannot be replaced by a file, if it cannot.
const char* what_stands_there(const std::filesystem::path& path) {
  std::error_code ignored;
  switch (std::filesystem::symlink_status(path, ignored).type()) {
    case std::filesystem::file_type::none:
    case std::filesystem::file_type::not_found:
    case std::filesystem::file_type::regular: return nullptr;
    case std::filesystem::file_type::directory: return "it is a folder; name a file in it";
    case std::filesystem::file_type::symlink: return "its links lead nowhere";
    default: return "it is no regular file (a device, a FIFO or a socket); name another";
  }
}

}  // namespace

FileReplacement::FileReplacement(std::filesystem::path path, std::string kind)
    : path_(follow_links(std::move(path))), kind_(std::move(kind)) {
  std::error_code ignored;
  if (path_.empty() || !path_.has_filename())
    throw_invalid_argument("the " + kind_ + " needs a file name, found \"" + path_.string() + "\"");
  if (!std::filesystem::is_directory(folder_of(path_), ignored)) {
    throw Error(ErrorCode::system, "cannot write the " + kind_ + " " + path_.string() +
                                       ": there is no folder " + folder_of(path_).string() +
                                       "; make it first");
  }
  if (const char* const problem = what_stands_there(path_))
    throw Error(ErrorCode::system, "cannot write the " + kind_ + " " + path_.string() + ": " + problem);
  remove_leftovers(path_);
  while (!fd_) {
    temporary_ = path_.string() + unique_suffix();
    fd_.reset(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd_ && errno == EEXIST) continue;
    if (!fd_) fail("open");
    if (::flock(fd_.get(), LOCK_EX) != 0 && errno != ENOSYS && errno != EOPNOTSUPP && errno != ENOLCK) {
      const int error_number = errno;
      ::unlink(temporary_.c_str());  // no destructor will do it
      errno = error_number;
      fail("lock");
    }
    if (!is_still_linked(fd_.get())) fd_.reset();
  }
}

FileReplacement::~FileReplacement() {
  if (fd_) ::unlink(temporary_.c_str());
}

void FileReplacement::fail(const char* what) const {
  const int error_number = errno;
  throw_system("cannot " + std::string(what) + " the " + kind_ + " " + path_.string() + " (as " +
                   temporary_.filename().string() + ")",
               error_number);
}

void FileReplacement::write(std::span<const std::byte> bytes) {
  if (const int error_number = write_all(fd_.get(), bytes); error_number != 0) {
    errno = error_number;
    fail("write");
  }
  size_ += bytes.size();
}

void FileReplacement::sync() {
  if (::fsync(fd_.get()) != 0) fail("sync");
}

UniqueFd FileReplacement::commit() {
  sync();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename");
  UniqueFd file = std::move(fd_);
  if (!sync_folder_of(path_)) fail("sync the folder of");
  return file;
}

void move_file(const std::filesystem::path& from, const std::filesystem::path& to, const std::string& kind) {
  if (::rename(from.c_str(), to.c_str()) == 0 && sync_folder_of(to)) return;
  const int error_number = errno;
  throw_system("cannot move the " + kind + " " + from.string() + " to " + to.filename().string(),
               error_number);
}

void make_folders(const std::filesystem::path& path, const std::string& kind) {
  std::error_code failure;
  std::filesystem::create_directories(path, failure);
  if (!failure && std::filesystem::is_directory(path, failure)) return;
  throw Error(ErrorCode::system, "cannot make the folder " + path.string() + " for the " + kind + ": " +
                                     (failure ? failure.message() : "something else has its name"));
}

void remove_leftovers(const std::filesystem::path& path) noexcept {
  try {
    const auto real = follow_links(path);
    const std::string file = real.filename().string();
    for (const auto& item : std::filesystem::directory_iterator(folder_of(real))) {
      if (is_temporary_of(item.path().filename().string(), file))
        remove_unless_locked(item.path(), [] { return true; });
    }
  } catch (const std::exception&) {
    return;  // no such folder, or one that may not be listed
  }
}

void remove_unless_locked(const std::filesystem::path& file,
                          const std::function<bool()>& is_unwanted) noexcept try {
  const UniqueFd fd(::open(file.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 && is_unwanted()) ::unlink(file.c_str());
} catch (const std::exception&) {
  return;  // who cannot tell wants it
}

std::filesystem::path follow_links(std::filesystem::path path) {
  constexpr int most_links = 40;  // as the system
  std::error_code ignored;
  for (int i = 0; i < most_links && std::filesystem::is_symlink(path, ignored); ++i) {
    const auto target = std::filesystem::read_symlink(path);
    path = target.is_absolute() ? target : folder_of(path) / target;
  }
  return path;
}

void write_file(const std::filesystem::path& path, const std::string& kind, const std::string& text) {
  FileReplacement file(path, kind);
  file.write(std::as_bytes(std::span(text)));
  static_cast<void>(file.commit());
}

InputFile::InputFile(const std::filesystem::path& path, std::string kind)
    : name_(path.string()), kind_(std::move(kind)) {
  // Non-blocking, because opening a FIFO would otherwise wait for a writer.
  fd_.reset(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd_) throw_system("cannot open the " + kind_ + " " + name_ + " (check its path and permissions)");
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) throw_system("cannot look at the " + kind_ + " " + name_);
  if (!S_ISREG(status.st_mode)) {
    throw_invalid_argument(name_ + ": expected the " + kind_ + ", found " +
                           (S_ISDIR(status.st_mode) ? "a directory; name the file in it"
                            : S_ISFIFO(status.st_mode)
                                ? "a FIFO; write its content to a file first"
                                : "a device or socket; copy its content to a file first"));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const auto count = ::pread(fd_.get(), bytes.data(), std::min(bytes.size(), std::size_t{1} << 30),
                               static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    const int error_number = errno;
    if (count < 0) {
      throw_system(fmt::format("cannot read the {} {} at byte {}", kind_, name_, offset), error_number);
    }
    if (count == 0) throw_shortened(offset, bytes.size());
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

std::string InputFile::text(std::uint64_t most) const {
  std::string text(static_cast<std::size_t>(std::min(size_, most)), '\0');
  read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

Mapping InputFile::map() const {
  return Mapping::of_file(fd_.get(), static_cast<std::size_t>(size_), Mapping::Access::read,
                          "the " + kind_ + " " + name_);
}

void InputFile::require_whole() const {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) throw_system("cannot look at the " + kind_ + " " + name_);
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  if (bytes < size_) throw_shortened(bytes, size_ - bytes);
}

void InputFile::throw_shortened(std::uint64_t offset, std::uint64_t missing) const {
  throw Error(ErrorCode::corrupt_data,
              fmt::format("{} {} at byte {}: expected {} more bytes, found the end of the file; it became "
                          "shorter while it was read: try again when its writer is done",
                          kind_, name_, offset, missing));
}

}  // namespace lockstep
