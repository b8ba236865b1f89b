// Data for examples/digits where script/make-digits has fetched none.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep::testing {

/// 40 random images to train and 40 to test, with labels below `labels`.
inline void write_digits(const std::filesystem::path& folder, int labels) {
  const auto write = [&](const std::string& name, std::initializer_list<int> head, int count, int modulus) {
    std::ofstream file(folder / name, std::ios::binary);
    for (const int byte : head) file.put(static_cast<char>(byte));
    for (int i = 0; i < count; ++i) file.put(static_cast<char>(i * 7 % modulus));
  };
  for (const std::string set : {"train", "test"}) {
    write(set + "-images-idx3-ubyte", {0, 0, 8, 3, 0, 0, 0, 40, 0, 0, 0, 8, 0, 0, 0, 8}, 40 * 64, 17);
    write(set + "-labels-idx1-ubyte", {0, 0, 8, 1, 0, 0, 0, 40}, 40, labels);
  }
}

}  // namespace lockstep::testing
