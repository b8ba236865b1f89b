// A download that may break off at any moment, and that two processes may want at once: its bytes gather in
// NAME.part, of which one process at a time is the owner (flock). What was fetched stays there for the next,
// until the file is unpacked and the part goes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::fetch {

class PartFile {
 public:
  /// Opens or makes `path`, and waits until it is ours; `on_wait` is called once where that is not at once.
  /// Throws Error: system; timeout.
  PartFile(std::filesystem::path path, Deadline deadline, const std::function<void()>& on_wait);
  /// An empty one goes.
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  int fd() const { return fd_.get(); }
  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const;
  /// Throws away what has come. Throws Error{system}.
  void clear() const;
  /// It is no longer needed.
  void remove();

 private:
  bool take(Deadline deadline, bool& has_waited, const std::function<void()>& on_wait);

  std::filesystem::path path_;
  UniqueFd fd_;
};

}  // namespace lockstep::fetch
