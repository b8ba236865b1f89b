#include "lockstep/memory/page_swap.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/pages.h"

namespace lockstep {
namespace {

using base::page_bytes;

std::uint64_t address_of(const std::byte* place) { return reinterpret_cast<std::uintptr_t>(place); }

/// A line of /proc/self/maps: "7f00-7f02 rw-p 00000000 00:00 0  name".
struct MappedPiece {
  std::uint64_t begin = 0, end = 0;
  std::string access, name;
  std::uint64_t inode = 0;

  static std::optional<MappedPiece> read(const std::string& line) {
    MappedPiece piece;
    std::istringstream words(line);
    char dash = 0;
    std::string offset, device;
    words >> std::hex >> piece.begin >> dash >> piece.end >> piece.access >> offset >> device >> std::dec >>
        piece.inode;
    if (!words || dash != '-') return std::nullopt;
    std::getline(words >> std::ws, piece.name);
    return piece;
  }
  /// Why none of it can be registered; "" where it can.
  std::string why_not() const {
    if (access.size() != 4 || access[3] != 'p' || inode != 0)
      return "shared, or mapped from a file" + (name.empty() ? "" : " (" + name + ")") +
             ": it is registered already, or reachable by other processes in another way";
    if (!access.starts_with("rw")) return "not to be written";
    if (name.starts_with("[stack")) return "a stack";
    return "";
  }
};

/// <linux/fs.h> of Linux 6.11.
struct ProcmapQuery {
  std::uint64_t size = sizeof(ProcmapQuery);
  std::uint64_t query_flags = 0;
  std::uint64_t query_addr = 0;
  std::uint64_t vma_start = 0, vma_end = 0, vma_flags = 0, vma_page_size = 0, vma_offset = 0, inode = 0;
  std::uint32_t dev_major = 0, dev_minor = 0, vma_name_size = 0, build_id_size = 0;
  std::uint64_t vma_name_addr = 0, build_id_addr = 0;
};
static_assert(sizeof(ProcmapQuery) == 104);
constexpr unsigned long procmap_query = _IOWR('f', 17, ProcmapQuery);

/// Of this process, until it ends; -1 where there is none.
struct FilesOfSelf {
  int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  int pagemap = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

  static FilesOfSelf& get() {
    static FilesOfSelf files;
    return files;
  }
};

/// Whether it is; nullopt where this system does not answer that.
std::optional<bool> ask_for_mapping(std::span<const std::byte> bytes, const FilePages& file) {
  const int maps = FilesOfSelf::get().maps;
  if (maps < 0) return std::nullopt;
  const std::uint64_t begin = address_of(bytes.data()), end = begin + bytes.size();
  for (std::uint64_t at = begin; at < end;) {
    ProcmapQuery query{.query_addr = at};
    if (::ioctl(maps, procmap_query, &query) != 0) {
      if (errno == ENOENT) return false;
      return std::nullopt;
    }
    const bool is_same = query.inode == file.inode && query.dev_major == major(file.device) &&
                         query.dev_minor == minor(file.device) && query.vma_start <= at &&
                         query.vma_offset + (at - query.vma_start) == file.offset + (at - begin);
    if (!is_same) return false;
    at = query.vma_end;
  }
  return true;
}

/// So that its page is there; false where there is none, or it may not be read.
bool fault_in(const std::byte* place) noexcept {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return false;
  const bool is_there = ::write(pipe[1], place, 1) == 1;  // or EFAULT, where this process would die
  for (const int end : pipe) (void)::close(end);
  return is_there;
}

/// What /proc/self/pagemap says of a page that is there: whether it is a file's, or of shared memory.
bool is_page_of_file(const std::byte* place) noexcept {
  const int pagemap = FilesOfSelf::get().pagemap;
  constexpr std::uint64_t is_present = std::uint64_t{1} << 63, is_of_file = std::uint64_t{1} << 61;
  const auto offset = static_cast<off_t>(address_of(place) / page_bytes * sizeof(std::uint64_t));
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::uint64_t entry = 0;
    if (pagemap < 0 || ::pread(pagemap, &entry, sizeof(entry), offset) != sizeof(entry)) return false;
    if ((entry & is_present) != 0) return (entry & is_of_file) != 0;
    if (!fault_in(place)) return false;
  }
  return false;
}

}  // namespace

FilePages FilePages::of(int fd, std::uint64_t offset) {
  struct stat about {};
  if (::fstat(fd, &about) != 0) throw_system("asking which file shared memory is");
  return {fd, about.st_ino, about.st_dev, offset};
}

void require_private(std::span<const std::byte> bytes) {
  std::uint64_t covered = address_of(bytes.data());
  const std::uint64_t end = covered + bytes.size();
  std::string why = "not mapped";
  std::ifstream maps("/proc/self/maps");
  if (!maps) throw_system("asking what memory there is (/proc/self/maps)");
  for (std::string line; covered < end && std::getline(maps, line);) {
    const auto piece = MappedPiece::read(line);
    if (!piece || piece->end <= covered) continue;
    if (piece->begin > covered) break;
    why = piece->why_not();
    if (!why.empty()) break;
    covered = piece->end;
    why = "not mapped";
  }
  if (covered >= end) return;
  throw_invalid_argument(
      fmt::format("register_memory: the {} bytes at {} are, or some of them, {}; what the program has from "
                  "malloc, new or an "
                  "anonymous private mapping can be registered",
                  bytes.size(), static_cast<const void*>(bytes.data()), why));
}

void share_pages(std::span<std::byte> pages, const FilePages& file, std::span<std::byte> shared) {
  std::memcpy(shared.data(), pages.data(), pages.size());
  // Elsewhere at first: where there is no room for one more mapping, this fails, and nothing has happened.
  void* const fresh = ::mmap(nullptr, pages.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                             file.fd, static_cast<off_t>(file.offset));
  if (fresh == MAP_FAILED) throw_system("mapping memory that is to be registered");
  if (::mremap(fresh, pages.size(), pages.size(), MREMAP_MAYMOVE | MREMAP_FIXED, pages.data()) ==
      MAP_FAILED) {
    const int error = errno;
    (void)::munmap(fresh, pages.size());
    throw_system("putting shared memory into the place of what is to be registered", error);
  }
}

bool take_pages_back(std::span<std::byte> pages) noexcept {
  void* const fresh =
      ::mmap(nullptr, pages.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return false;
  std::memcpy(fresh, pages.data(), pages.size());
  if (::mremap(fresh, pages.size(), pages.size(), MREMAP_MAYMOVE | MREMAP_FIXED, pages.data()) != MAP_FAILED)
    return true;
  (void)::munmap(fresh, pages.size());
  return false;
}

void look_at_own_mappings() noexcept {
  const FilesOfSelf of_parent = std::exchange(FilesOfSelf::get(), FilesOfSelf{});
  for (const int file : {of_parent.maps, of_parent.pagemap}) {
    if (file >= 0) (void)::close(file);
  }
}

bool is_mapped_from(std::span<const std::byte> bytes, const FilePages& file) noexcept {
  const auto known = ask_for_mapping(bytes, file);
  return known ? *known : looks_shared(bytes);
}

bool looks_shared(std::span<const std::byte> bytes) noexcept {
  return is_page_of_file(bytes.data()) && is_page_of_file(bytes.data() + bytes.size() - 1);
}

}  // namespace lockstep
