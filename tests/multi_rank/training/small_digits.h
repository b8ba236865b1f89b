// Data for examples/digits where script/make-digits has fetched none, and what its training leaves.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
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

/// The bytes of all parameters in a checkpoint with an optimizer, whose own entry, the last one, differs from run to run
/// (docs/checkpoint_format.md).
inline std::string parameters_in(const std::filesystem::path& checkpoint) {
  std::ifstream file(checkpoint, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  const auto number_at = [&](std::size_t at) {
    std::uint64_t number = 0;
    if (at + sizeof(number) <= bytes.size()) std::memcpy(&number, bytes.data() + at, sizeof(number));
    return static_cast<std::size_t>(number);
  };
  const std::size_t header = number_at(16);
  const std::size_t optimizer = number_at(header - 48);
  return header < optimizer && optimizer < bytes.size() ? bytes.substr(header, optimizer - header) : "";
}

}  // namespace lockstep::testing
