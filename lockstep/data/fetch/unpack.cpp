#include "lockstep/data/fetch/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/loaded_library.h"
#include "lockstep/base/quote.h"

namespace lockstep::fetch {
namespace {

using base::quote;

constexpr std::size_t block_bytes = std::size_t{1} << 18;

/// The functions of libarchive that we call.
struct ArchiveLibrary {
  decltype(&::archive_read_new) read_new;
  decltype(&::archive_read_support_filter_gzip) gzip;
  decltype(&::archive_read_support_format_tar) tar;
  decltype(&::archive_read_support_format_raw) raw;
  decltype(&::archive_read_open_fd) open_fd;
  decltype(&::archive_read_next_header) next_header;
  decltype(&::archive_read_data) read_data;
  decltype(&::archive_read_free) read_free;
  decltype(&::archive_error_string) error_string;
  decltype(&::archive_filter_code) filter_code;
  decltype(&::archive_entry_pathname) pathname;
  decltype(&::archive_entry_filetype) filetype;
  decltype(&::archive_entry_hardlink) hardlink;

  static const ArchiveLibrary& get();
};

#define LOCKSTEP_LOADED(name) library.function<decltype(&::name)>(#name)
ArchiveLibrary load_libarchive() {
  const LoadedLibrary library("libarchive.so.13", "install libarchive (Debian: libarchive13)");
  return {LOCKSTEP_LOADED(archive_read_new),
          LOCKSTEP_LOADED(archive_read_support_filter_gzip),
          LOCKSTEP_LOADED(archive_read_support_format_tar),
          LOCKSTEP_LOADED(archive_read_support_format_raw),
          LOCKSTEP_LOADED(archive_read_open_fd),
          LOCKSTEP_LOADED(archive_read_next_header),
          LOCKSTEP_LOADED(archive_read_data),
          LOCKSTEP_LOADED(archive_read_free),
          LOCKSTEP_LOADED(archive_error_string),
          LOCKSTEP_LOADED(archive_filter_code),
          LOCKSTEP_LOADED(archive_entry_pathname),
          LOCKSTEP_LOADED(archive_entry_filetype),
          LOCKSTEP_LOADED(archive_entry_hardlink)};
}
#undef LOCKSTEP_LOADED

const ArchiveLibrary& ArchiveLibrary::get() {
  static const ArchiveLibrary loaded = load_libarchive();
  return loaded;
}

bool leads_out(std::string_view path) {
  if (path.empty() || path.front() == '/') return true;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (path.substr(at, end - at) == "..") return true;
    at = end + 1;
  }
  return false;
}

/// "./a/b" is a/b.
std::string_view without_dot(std::string_view path) {
  while (path.starts_with("./")) path.remove_prefix(2);
  return path;
}

/// An open archive, member by member.
class Reader {
 public:
  Reader(int fd, std::string name, bool is_tar)
      : name_(std::move(name)), handle_(library_.read_new(), library_.read_free) {
    if (handle_ == nullptr) throw Error(ErrorCode::system, "libarchive has no memory");
    library_.gzip(handle());
    if (is_tar) library_.tar(handle());
    if (!is_tar) library_.raw(handle());
    if (::lseek(fd, 0, SEEK_SET) != 0) throw_system("reading " + name_);
    require(library_.open_fd(handle(), fd, block_bytes));
  }

  /// False: there are no more.
  bool next() {
    const int result = library_.next_header(handle(), &entry_);
    if (result == ARCHIVE_EOF) return false;
    require(result);
    if (library_.filter_code(handle(), 0) != ARCHIVE_FILTER_GZIP) refuse("it is not packed by gzip");
    return true;
  }
  /// Of this member, where it is a regular file that may lie in a folder; empty for a folder.
  std::string safe_path() const {
    const char* const said = library_.pathname(entry_);
    const std::string path = said == nullptr ? "" : said;
    if (leads_out(path)) refuse("its member " + quote(path) + " would lie outside of the folder");
    const auto type = library_.filetype(entry_);
    if (type == AE_IFDIR) return "";
    if (type != AE_IFREG || library_.hardlink(entry_) != nullptr)
      refuse("its member " + quote(path) + " is no regular file");
    return std::string(without_dot(path));
  }
  void write_into(FileReplacement& file, const std::string& member, std::uint64_t most_bytes) const {
    std::vector<std::byte> block(block_bytes);
    while (true) {
      const auto got = library_.read_data(handle(), block.data(), block.size());
      require(static_cast<int>(std::min<la_ssize_t>(got, 0)));
      if (got == 0) return;
      if (file.size() + static_cast<std::uint64_t>(got) > most_bytes) {
        refuse(quote(member) + " has more than the " + std::to_string(most_bytes) +
               " bytes that it may have");
      }
      file.write(std::span(block).first(static_cast<std::size_t>(got)));
    }
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::corrupt_data, name_ + ": " + what);
  }

 private:
  ::archive* handle() const { return handle_.get(); }
  void require(int result) const {
    if (result == ARCHIVE_OK) return;
    const char* const words = library_.error_string(handle());
    refuse(std::string("it cannot be unpacked: ") + (words == nullptr ? "it is damaged" : words));
  }

  const ArchiveLibrary& library_ = ArchiveLibrary::get();
  std::string name_;
  std::unique_ptr<::archive, decltype(&::archive_read_free)> handle_;
  ::archive_entry* entry_ = nullptr;
};

using Written = std::vector<std::unique_ptr<FileReplacement>>;

void write_member(const Reader& reader, const Unpacked& file, const std::filesystem::path& folder,
                  std::uint64_t most_bytes, Written& written) {
  written.push_back(std::make_unique<FileReplacement>(folder / file.name, "data set's file"));
  reader.write_into(*written.back(), file.name, most_bytes);
}

}  // namespace

void unpack(int fd, const Published& archive, const std::filesystem::path& folder, std::uint64_t most_bytes) {
  const bool is_tar = !archive.files.front().member.empty();
  Reader reader(fd, archive.name, is_tar);
  Written written;
  std::vector<const Unpacked*> missing;
  for (const Unpacked& file : archive.files) missing.push_back(&file);
  while (!missing.empty() && reader.next()) {
    const std::string path = is_tar ? reader.safe_path() : "";
    const auto file = std::ranges::find(missing, path, [](const Unpacked* one) { return one->member; });
    if (file == missing.end()) continue;
    write_member(reader, **file, folder, most_bytes, written);
    missing.erase(file);
  }
  if (!missing.empty()) {
    const Unpacked& one = *missing.front();
    reader.refuse("there is no " + quote(one.member.empty() ? one.name : one.member) + " in it");
  }
  for (const auto& file : written) file->sync();
  for (const auto& file : written) (void)file->commit();
}

}  // namespace lockstep::fetch
