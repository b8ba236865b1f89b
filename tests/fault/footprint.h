// What a process holds, and whether it grows: "descriptors=9..9 mappings=80..80 memory_kib=1600..1610".
// Its memory is what it has written to, private and shared. Pages of programs and libraries are files' and the system's to take
// back; they come, 64 KiB at a time, as code runs for the first time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace probe {

struct Footprint {
  std::ptrdiff_t descriptors = 0, mappings = 0, memory_kib = 0;

  static Footprint now() {
    Footprint found;
    const std::filesystem::directory_iterator descriptors("/proc/self/fd");
    found.descriptors = std::distance(begin(descriptors), end(descriptors));
    std::ifstream maps("/proc/self/maps");
    found.mappings = std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("RssAnon:") || line.starts_with("RssShmem:"))
        found.memory_kib += std::stol(line.substr(line.find(':') + 1));
    }
    return found;
  }
  static std::string text(const Footprint& from, const Footprint& to) {
    const auto shown = [](const char* name, std::ptrdiff_t before, std::ptrdiff_t after) {
      return std::string(name) + "=" + std::to_string(before) + ".." + std::to_string(after);
    };
    return shown("descriptors", from.descriptors, to.descriptors) + " " +
           shown("mappings", from.mappings, to.mappings) + " " +
           shown("memory_kib", from.memory_kib, to.memory_kib);
  }
};

}  // namespace probe
