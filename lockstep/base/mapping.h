// A stretch of mapped memory and the anonymous file (memfd) behind it. Shared memory between processes is
// always a memfd: it has no name to leak, does not depend on the size of /dev/shm, and goes with its last
// user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/base/unique_fd.h"

namespace lockstep {

/// A sparse anonymous file of `bytes`; pages appear when first touched. Nobody can make it smaller, which would end
/// every process that has mapped it when that touches what is gone. Throws Error{system}.
UniqueFd make_memfd(const std::string& name, std::size_t bytes);

/// Error{corrupt_data} unless `fd`, which another process made, is a file that nobody can make smaller; `what` stands
/// in it.
void require_unshrinkable(int fd, const std::string& what);

/// Gives pages [offset, offset + bytes) real memory now, so that touching them later cannot raise SIGBUS.
/// Throws Error{system} saying how much was asked for.
void reserve_pages(int memfd, std::size_t offset, std::size_t bytes);

/// The same for mapped memory for which use_huge_pages() was called, where the system gives huge pages only
/// to mapped memory ("advise"). False elsewhere: reserve_pages() does it.
bool reserve_huge_pages(std::span<std::byte> bytes);

/// Where huge pages lie, in memory and in a file of shared memory.
inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

/// Gives the pages' memory back to the system; they read as zero afterwards.
void release_pages(int memfd, std::size_t offset, std::size_t bytes);

class Mapping {
 public:
  Mapping() = default;
  enum class Access { read, read_and_write };
  /// Maps the whole of `fd` (its size is read from the file and must be at least `least_bytes`), shared.
  /// Throws Error{system}, or corrupt_data when the file is too small; `what` stands in messages.
  static Mapping of_file(int fd, std::size_t least_bytes, Access access = Access::read_and_write,
                         const std::string& what = "shared memory");
  /// Zeroed memory shared by the threads of this process only.
  static Mapping anonymous(std::size_t bytes);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  /// From `offset` on, a multiple of huge_page_bytes, pages are huge ones where the system has them for
  /// shared memory (/sys/kernel/mm/transparent_hugepage/shmem_enabled); elsewhere it does nothing.
  void use_huge_pages(std::size_t offset) const;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  Mapping(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep
