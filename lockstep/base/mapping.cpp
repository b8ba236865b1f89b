#include "lockstep/base/mapping.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

UniqueFd make_memfd(const std::string& name, std::size_t bytes) {
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw_system("memfd_create(" + name + ")");
  // The system would not only refuse: it sends SIGXFSZ, which ends the process without a word.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    throw Error(ErrorCode::system, fmt::format("shared memory {} of {} bytes is a file for the system, and "
                                               "files may have {} bytes here: raise ulimit -f",
                                               name, bytes, limit.rlim_cur));
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    throw_system(fmt::format("sizing shared memory {} to {} bytes", name, bytes));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    throw_system("sealing shared memory " + name + " against shrinking");
  return fd;
}

void require_unshrinkable(int fd, const std::string& what) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw Error(ErrorCode::corrupt_data,
                what + " is not sealed against shrinking; all ranks must use the same version of Lockstep");
  }
}

void reserve_pages(int memfd, std::size_t offset, std::size_t bytes) {
  int result = 0;
  do {
    result = ::fallocate(memfd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) throw_system(fmt::format("reserving {} bytes of shared memory", bytes));
}

namespace {

bool gives_huge_pages_on_advice() {
  static const bool answer = [] {
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    std::string line;
    std::getline(file, line);
    return line.find("[advise]") != std::string::npos;
  }();
  return answer;
}

}  // namespace

bool reserve_huge_pages(std::span<std::byte> bytes) {
#if defined(MADV_POPULATE_WRITE)
  if (!gives_huge_pages_on_advice()) return false;
  int result = 0;
  do {
    result = ::madvise(bytes.data(), bytes.size(), MADV_POPULATE_WRITE);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno == ENOMEM)
    throw_system(fmt::format("reserving {} bytes of shared memory", bytes.size()));
  return result == 0;
#else
  static_cast<void>(bytes);
  return false;
#endif
}

void release_pages(int memfd, std::size_t offset, std::size_t bytes) {
  // Failure leaves the pages in place, which costs memory but harms nothing.
  static_cast<void>(::fallocate(memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                                static_cast<off_t>(bytes)));
}

Mapping Mapping::of_file(int fd, std::size_t least_bytes, Access access, const std::string& what) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw_system("fstat of " + what);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size < least_bytes || size == 0) {
    throw Error(ErrorCode::corrupt_data, fmt::format("{} has {} bytes, expected at least {}", what, size,
                                                     std::max<std::size_t>(least_bytes, 1)));
  }
  const int protection = access == Access::read ? PROT_READ : PROT_READ | PROT_WRITE;
  void* address = ::mmap(nullptr, size, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (address == MAP_FAILED) throw_system(fmt::format("mapping {} bytes of {}", size, what));
  return {static_cast<std::byte*>(address), size};
}

Mapping Mapping::anonymous(std::size_t bytes) {
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) throw_system(fmt::format("mapping {} bytes", bytes));
  return {static_cast<std::byte*>(address), bytes};
}

void Mapping::use_huge_pages(std::size_t offset) const {
  static_cast<void>(::madvise(data_ + offset, size_ - offset, MADV_HUGEPAGE));  // a wish
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace lockstep
