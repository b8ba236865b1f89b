// Files that tests of this floor make, and those that Python has made for them.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/folder_test.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::test {

using Bytes = std::vector<std::byte>;

inline Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline Bytes content_of(const std::filesystem::path& path) { return bytes_of(text_in(path)); }

/// A file that Python's torch has written: see tests/pth/record.py.
inline std::filesystem::path recorded(const std::string& name) {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  return std::filesystem::path(source == nullptr ? "." : source) / "tests" / "pth" / (name + ".pth");
}

/// A file in memory, for a test that needs thousands of them, one after the other.
class MemoryFile {
 public:
  MemoryFile()
      : fd_(::memfd_create("test", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_.get())) {}

  /// The file, with this content from now on.
  const std::filesystem::path& with(std::span<const std::byte> content) const {
    EXPECT_EQ(::ftruncate(fd_.get(), 0), 0);
    EXPECT_EQ(::pwrite(fd_.get(), content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
    return path_;
  }

 private:
  UniqueFd fd_;
  std::filesystem::path path_;
};

}  // namespace lockstep::test
