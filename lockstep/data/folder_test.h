// A folder for each test, and what an Error says, for the tests of this floor.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::test {

using Bytes = std::vector<std::byte>;

inline Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline Bytes content_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return bytes_of(text);
}

/// A file that Python's torch has written: see tests/pth/record.py.
inline std::filesystem::path recorded(const std::string& name) {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  return std::filesystem::path(source == nullptr ? "." : source) / "tests" / "pth" / (name + ".pth");
}

/// "corrupt_data: what it says", or "accepted".
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.code())).append(": ").append(error.what());
  }
  return "accepted";
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

class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "folder_test.XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// A new file with this content.
  std::filesystem::path file(const std::string& name, std::span<const std::byte> content) const {
    std::filesystem::path path = folder_ / name;
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
    return path;
  }

  std::filesystem::path folder_;
};

}  // namespace lockstep::test
