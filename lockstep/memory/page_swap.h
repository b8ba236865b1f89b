// Pages of the program's memory are replaced by pages of a file that other processes have mapped, and put back, without the program
// seeing more of it than that they are shared meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// Bytes of a file of shared memory, from an offset on.
struct FilePages {
  int fd = -1;
  std::uint64_t inode = 0, device = 0;
  std::uint64_t offset = 0;  ///< of the first byte; to be mapped it has to be a multiple of the page

  /// Throws Error{system}.
  static FilePages of(int fd, std::uint64_t offset);
  FilePages from(std::uint64_t byte) const { return {fd, inode, device, offset + byte}; }
};

/// Throws Error{invalid_argument} unless all of it is the process's own and can be written: no file, nothing shared, no stack.
void require_private(std::span<const std::byte> bytes);

/// These whole pages, which stay as they are, are those of the file from now on; `shared`: the same, mapped elsewhere. No thread may
/// write to them meanwhile. Throws Error{system}: the memory is then as it was.
void share_pages(std::span<std::byte> pages, const FilePages& file, std::span<std::byte> shared);

/// The inverse: what is in the pages is in private ones, at the same place. False, and nothing has changed, where there is no memory
/// for that.
bool take_pages_back(std::span<std::byte> pages) noexcept;

/// Whether `bytes` are still mapped from these pages: the program may have freed or moved the memory, and have other memory at its
/// place. Cost: a system call, about a microsecond; Linux before 6.11 is asked for the first and the last page, and tells
/// private memory from that of a file, but not one file from another.
bool is_mapped_from(std::span<const std::byte> bytes, const FilePages& file) noexcept;
/// The latter way.
bool looks_shared(std::span<const std::byte> bytes) noexcept;
/// In the child of a fork, before these are asked there: what the parent has opened tells of the parent's memory.
void look_at_own_mappings() noexcept;

}  // namespace lockstep
