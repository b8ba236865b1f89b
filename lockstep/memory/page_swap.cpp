#include "lockstep/memory/page_swap.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/pages.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep {
namespace {

using base::page_bytes;

std::uint64_t address_of(const std::byte* place) { return reinterpret_cast<std::uintptr_t>(place); }

std::span<std::byte> pages_around(std::span<std::byte> bytes) {
  const std::size_t before = base::offset_in_page(bytes.data());
  return {bytes.data() - before, base::round_up(before + bytes.size())};
}

/// The first and the last page, where something else lies in them, too.
std::vector<std::size_t> edges_of(std::span<std::byte> pages, std::span<std::byte> bytes) {
  std::vector<std::size_t> offsets;
  if (bytes.data() != pages.data()) offsets.push_back(0);
  const std::size_t last = pages.size() - page_bytes;
  const bool ends_inside = bytes.data() + bytes.size() != pages.data() + pages.size();
  if (ends_inside && (last > 0 || offsets.empty())) offsets.push_back(last);
  return offsets;
}

// Bytes beside the program's own, which other threads may write, are read and written here: sanitizers, also those that a program has
// and we have not, would take that for a mistake.
#define LOCKSTEP_OTHERS_BYTES __attribute__((no_sanitize("address"))) __attribute__((no_sanitize("thread")))

/// Of whole pages; no call of memcpy.
LOCKSTEP_OTHERS_BYTES void copy_pages(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  auto* const out = reinterpret_cast<volatile std::uint64_t*>(to);
  const auto* const in = reinterpret_cast<const volatile std::uint64_t*>(from);
  for (std::size_t i = 0; i < bytes / sizeof(std::uint64_t); ++i) out[i] = in[i];
}

/// A page that nothing was written to yet, or that a fork has made common, would be another one after the first write.
LOCKSTEP_OTHERS_BYTES void make_own(std::byte* page) noexcept {
  (void)__atomic_fetch_or(reinterpret_cast<unsigned char*>(page), 0, __ATOMIC_RELAXED);
}

struct alignas(std::uint64_t) Page : std::array<std::byte, page_bytes> {};

Page copy_of(const std::byte* page) noexcept {
  Page copy;
  copy_pages(copy.data(), page, page_bytes);
  return copy;
}

/// What was written to a page between its `copy` and its end, as `last` seen, is written to the one that came of the copy, unless
/// that has been written to already.
LOCKSTEP_OTHERS_BYTES void mend(std::byte* page, const Page& copy, const Page& last) noexcept {
  const std::byte* const before = copy.data();
  const std::byte* const after = last.data();
  for (std::size_t i = 0; i < page_bytes; ++i) {
    if (after[i] != before[i] && page[i] == before[i]) page[i] = after[i];
  }
}

/// A page of private memory that is to be replaced: a pipe holds it meanwhile, with what is written to it until then.
class OldPage {
 public:
  explicit OldPage(std::byte* page) {
    make_own(page);
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw_system("a pipe for a page");
    reader_ = UniqueFd(ends[0]);
    writer_ = UniqueFd(ends[1]);
    const iovec all{page, page_bytes};
    if (::vmsplice(writer_.get(), &all, 1, 0) != static_cast<ssize_t>(page_bytes))
      throw_system("holding a page in a pipe (vmsplice)");
  }
  /// Once.
  Page content() const {
    Page page{};
    for (std::size_t done = 0; done < page_bytes;) {
      const ssize_t got = ::read(reader_.get(), page.data() + done, page_bytes - done);
      if (got <= 0) throw_system("reading a page from a pipe");
      done += static_cast<std::size_t>(got);
    }
    return page;
  }

 private:
  UniqueFd reader_, writer_;
};

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

int open_of_self(const char* path) { return ::open(path, O_RDONLY | O_CLOEXEC); }

/// Whether it is; nullopt where this system does not answer that.
std::optional<bool> ask_for_mapping(std::span<const std::byte> bytes, const FilePages& file) {
  static const int maps = open_of_self("/proc/self/maps");  // until the process ends
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

/// What /proc/self/pagemap says of a page that is there: whether it is a file's, or of shared memory.
bool is_page_of_file(const std::byte* place) noexcept {
  static const int pagemap = open_of_self("/proc/self/pagemap");
  constexpr std::uint64_t is_present = std::uint64_t{1} << 63, is_of_file = std::uint64_t{1} << 61;
  const auto offset = static_cast<off_t>(address_of(place) / page_bytes * sizeof(std::uint64_t));
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::uint64_t entry = 0;
    if (pagemap < 0 || ::pread(pagemap, &entry, sizeof(entry), offset) != sizeof(entry)) return false;
    if ((entry & is_present) != 0) return (entry & is_of_file) != 0;
    static_cast<void>(*reinterpret_cast<const volatile std::byte*>(place));  // and the page is there
  }
  return false;
}

bool replace_by_copy(std::span<std::byte> pages) noexcept {
  void* const fresh =
      ::mmap(nullptr, pages.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return false;
  copy_pages(static_cast<std::byte*>(fresh), pages.data(), pages.size());
  if (::mremap(fresh, pages.size(), pages.size(), MREMAP_MAYMOVE | MREMAP_FIXED, pages.data()) != MAP_FAILED)
    return true;
  (void)::munmap(fresh, pages.size());
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

void share_pages(std::span<std::byte> bytes, const FilePages& file, std::span<std::byte> shared) {
  const std::span<std::byte> pages = pages_around(bytes);
  const std::vector<std::size_t> edges = edges_of(pages, bytes);
  std::vector<OldPage> old;
  old.reserve(edges.size());
  for (const std::size_t edge : edges) old.emplace_back(pages.data() + edge);
  copy_pages(shared.data(), pages.data(), pages.size());
  std::vector<Page> copies;
  for (const std::size_t edge : edges) copies.push_back(copy_of(shared.data() + edge));
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
  for (std::size_t i = 0; i < edges.size(); ++i) mend(pages.data() + edges[i], copies[i], old[i].content());
}

bool take_pages_back(std::span<std::byte> bytes, std::span<const std::byte> shared) noexcept {
  const std::span<std::byte> pages = pages_around(bytes);
  if (shared.empty()) return replace_by_copy(pages);
  const Page first = copy_of(pages.data()), last = copy_of(pages.data() + pages.size() - page_bytes);
  if (!replace_by_copy(pages)) return false;
  mend(pages.data(), first, copy_of(shared.data()));
  if (pages.size() > page_bytes)
    mend(pages.data() + pages.size() - page_bytes, last, copy_of(shared.data() + pages.size() - page_bytes));
  return true;
}

bool is_mapped_from(std::span<const std::byte> bytes, const FilePages& file) noexcept {
  const auto known = ask_for_mapping(bytes, file);
  return known ? *known : looks_shared(bytes);
}

bool looks_shared(std::span<const std::byte> bytes) noexcept {
  return is_page_of_file(bytes.data()) && is_page_of_file(bytes.data() + bytes.size() - 1);
}

}  // namespace lockstep
