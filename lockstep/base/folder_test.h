// A folder of its own for each test, and what a call says of the files in it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/byte_codec.h"
#include "lockstep/base/error.h"

namespace lockstep::test {

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

inline std::string text_in(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    std::string pattern = testing::TempDir() + "folder_test.XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }
  FolderTest(const FolderTest&) = delete;
  FolderTest& operator=(const FolderTest&) = delete;

  /// A new file with this content.
  std::filesystem::path file(const std::string& name, std::string_view content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }
  std::filesystem::path file(const std::string& name, std::span<const std::byte> content) const {
    return file(name, base::text_of(content));
  }
  /// The names of what is in it, sorted.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& item : std::filesystem::directory_iterator(folder_))
      names.push_back(item.path().filename());
    std::ranges::sort(names);
    return names;
  }

  std::filesystem::path folder_;
};

}  // namespace lockstep::test
