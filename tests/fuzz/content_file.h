// A file whose content an input is, for readers that want a path. Anonymous, and one for all inputs, because
// that is quick.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "lockstep/base/unique_fd.h"
#include "tests/fuzz/targets.h"

namespace lockstep::fuzz {

class ContentFile {
 public:
  ContentFile()
      : fd_(::memfd_create("content", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_.get())) {}

  void replace(Input content) const {
    const bool done = ::ftruncate(fd_.get(), 0) == 0 && ::pwrite(fd_.get(), content.data(), content.size(),
                                                                 0) == static_cast<ssize_t>(content.size());
    require(done, "the test has a file");
  }
  const std::string& path() const { return path_; }

 private:
  UniqueFd fd_;
  std::string path_;
};

}  // namespace lockstep::fuzz
