// What a process holds, and whether it grows: "descriptors=9..9 mappings=80..80 resident_kib=9000..9100".
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace probe {

struct Footprint {
  std::ptrdiff_t descriptors = 0, mappings = 0, resident_kib = 0;

  static Footprint now() {
    Footprint found;
    const std::filesystem::directory_iterator descriptors("/proc/self/fd");
    found.descriptors = std::distance(begin(descriptors), end(descriptors));
    std::ifstream maps("/proc/self/maps");
    found.mappings = std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
    std::ptrdiff_t all_pages = 0, resident_pages = 0;
    std::ifstream("/proc/self/statm") >> all_pages >> resident_pages;
    found.resident_kib = resident_pages * ::sysconf(_SC_PAGESIZE) / 1024;
    return found;
  }
  static std::string text(const Footprint& from, const Footprint& to) {
    const auto shown = [](const char* name, std::ptrdiff_t before, std::ptrdiff_t after) {
      return std::string(name) + "=" + std::to_string(before) + ".." + std::to_string(after);
    };
    return shown("descriptors", from.descriptors, to.descriptors) + " " +
           shown("mappings", from.mappings, to.mappings) + " " +
           shown("resident_kib", from.resident_kib, to.resident_kib);
  }
};

}  // namespace probe
