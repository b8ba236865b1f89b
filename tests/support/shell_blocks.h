// The commands that pages of the documentation show.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace lockstep::testing {

/// What stands between ```sh and ``` in a page of the repository, "docs/running.md".
inline std::vector<std::string> shell_blocks_in(const std::string& page) {
  std::ifstream file(std::filesystem::path(std::getenv("LOCKSTEP_SOURCE_DIR")) / page);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> blocks;
  const std::string begin = "```sh\n", end = "```\n";
  for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at)) {
    at += begin.size();
    blocks.push_back(text.substr(at, text.find(end, at) - at));
  }
  return blocks;
}

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace lockstep::testing
