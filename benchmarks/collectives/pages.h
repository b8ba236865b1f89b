// Memory in huge pages is faster than memory in small ones, so a comparison has to say which it was; the
// system gives them as it likes, so it is asked afterwards.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace bench {

/// Which share of the mapping that `address` is in lies in huge pages, of what it has in memory; 0 where the
/// system does not say.
inline double huge_share(const void* address) {
  std::ifstream file("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  bool inside = false;
  double resident = 0;
  double huge = 0;
  for (std::string text; std::getline(file, text);) {
    std::istringstream words(text);
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      inside = begin <= wanted && wanted < end;
      continue;
    }
    std::istringstream entry(text);
    std::string name;
    double kilobytes = 0;
    if (!inside || !(entry >> name >> kilobytes)) continue;
    if (name == "Rss:") resident = kilobytes;
    if (name == "AnonHugePages:" || name == "ShmemPmdMapped:") huge += kilobytes;
  }
  return resident > 0 ? huge / resident : 0;
}

}  // namespace bench
