#include "lockstep/base/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/write.h"

namespace lockstep {
namespace {

constexpr std::size_t random_bytes = 32;

void require_size(const std::string& where, std::size_t bytes) {
  if (bytes < Secret::min_bytes || bytes > Secret::max_bytes) {
    throw_invalid_argument(where + " has " + std::to_string(bytes) + " bytes; a secret has " +
                           std::to_string(Secret::min_bytes) + " to " + std::to_string(Secret::max_bytes));
  }
}

struct stat status_of(int fd, const std::string& where) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw_system(where);
  return status;
}

// Up to `limit` bytes from offset 0.
std::vector<std::byte> read_from_start(int fd, const std::string& where, std::size_t limit) {
  std::vector<std::byte> bytes(limit);
  std::size_t done = 0;
  while (done < limit) {
    const ssize_t got = ::pread(fd, bytes.data() + done, limit - done, static_cast<off_t>(done));
    if (got == 0) break;
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (errno != EINTR) {
      throw_system(where);
    }
  }
  bytes.resize(done);
  return bytes;
}

void require_private(const struct stat& status, const std::string& where) {
  if (!S_ISREG(status.st_mode)) throw_invalid_argument(where + " is not a regular file");
  if (status.st_uid != ::geteuid()) {
    throw_invalid_argument(where + " belongs to user " + std::to_string(status.st_uid) + ", not to you");
  }
  if ((status.st_mode & 077U) != 0) {
    throw_invalid_argument(
        where + " is open to other users; run chmod 600 on it, and change it if they may have seen it");
  }
}

std::size_t without_line_end(std::span<const std::byte> bytes) {
  std::size_t size = bytes.size();
  if (size > 0 && bytes[size - 1] == std::byte{'\n'}) --size;
  if (size < bytes.size() && size > 0 && bytes[size - 1] == std::byte{'\r'}) --size;
  return size;
}

}  // namespace

Secret Secret::random() {
  std::vector<std::byte> bytes(random_bytes);
  if (::RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size())) != 1) {
    throw Error(ErrorCode::system, "the system's random generator failed");
  }
  return Secret(std::move(bytes));
}

Secret Secret::from_bytes(std::span<const std::byte> bytes) {
  require_size("the job secret", bytes.size());
  return Secret(std::vector<std::byte>(bytes.begin(), bytes.end()));
}

Secret Secret::from_file(const std::string& path) {
  const std::string where = "secret file " + path;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd) throw_system(where);
  const struct stat status = status_of(fd.get(), where);
  require_private(status, where);
  constexpr off_t line_end = 2;
  if (status.st_size > static_cast<off_t>(max_bytes) + line_end)
    require_size(where, static_cast<std::size_t>(status.st_size));
  const Secret whole(read_from_start(fd.get(), where, max_bytes + line_end));
  const std::size_t size = without_line_end(whole.bytes_);
  require_size(where, size);
  return from_bytes(whole.bytes().first(size));
}

Secret Secret::from_inherited_fd(int fd) {
  const std::string where = "inherited secret, descriptor " + std::to_string(fd);
  if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
    throw_invalid_argument("LOCKSTEP_SECRET_FD=" + std::to_string(fd) +
                           ": this descriptor is not open; what stands between launcher and program (a "
                           "shell, sudo, a container) has closed "
                           "it. Let it through, or give the secret in a file (LOCKSTEP_SECRET_FILE)");
  }
  const auto size = static_cast<std::size_t>(std::max<off_t>(status_of(fd, where).st_size, 0));
  require_size(where, size);
  Secret secret(read_from_start(fd, where, size));
  require_size(where, secret.bytes_.size());
  return secret;
}

UniqueFd Secret::to_memfd() const {
  UniqueFd fd(::memfd_create("lockstep-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw_system("memfd_create for the job secret");
  if (const int refused = write_all(fd.get(), bytes_); refused != 0) {
    throw Error(ErrorCode::system, "writing the job secret: " + std::generic_category().message(refused) +
                                       (refused == EFBIG ? "; raise ulimit -f" : ""));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0) {
    throw_system("sealing the job secret");
  }
  return fd;
}

Secret& Secret::operator=(Secret other) noexcept {
  bytes_.swap(other.bytes_);  // `other` zeroes what was ours
  return *this;
}

Secret::~Secret() { ::OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

bool operator==(const Secret& a, const Secret& b) {
  return a.bytes_.size() == b.bytes_.size() &&
         ::CRYPTO_memcmp(a.bytes_.data(), b.bytes_.data(), a.bytes_.size()) == 0;
}

}  // namespace lockstep
