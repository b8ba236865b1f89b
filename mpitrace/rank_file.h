// A file that a rank writes by mapping it: whatever ends the rank, the file has what was written. The rank keeps it locked
// while it lives, so that a file that can be locked belongs to nobody any more (rescue.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace lockstep::mpitrace {

class RankFile {
 public:
  /// `most_bytes` of address space, behind which the file grows by reserve(). A file of a rank that is gone is replaced;
  /// beside one that another process has, a name with our process id is taken. `wanted` "" or a file that cannot be made:
  /// memory alone, and `problem` says why. nullopt: not even that.
  static std::optional<RankFile> create(const std::string& wanted, std::size_t most_bytes,
                                        std::string& problem);

  std::byte* data() const { return data_; }
  bool is_memory_alone() const { return fd_ < 0; }
  const std::string& path() const { return path_; }  ///< "": memory alone

  /// Gives the file room, so that touching it later cannot end the process. False, with errno: there is none.
  bool reserve(std::size_t offset, std::size_t bytes) const;
  /// The file goes; the memory stays.
  void remove_file();
  /// In a forked child: neither the memory nor the file is its own.
  void forget();

 private:
  RankFile(std::byte* data, std::size_t most_bytes, int fd, std::string path)
      : data_(data), most_bytes_(most_bytes), fd_(fd), path_(std::move(path)) {}

  std::byte* data_;
  std::size_t most_bytes_;
  int fd_;  // -1: memory alone
  std::string path_;
};

}  // namespace lockstep::mpitrace
