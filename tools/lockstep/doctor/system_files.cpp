#include "system_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <system_error>

namespace doctor {

std::string line_of(const std::filesystem::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

std::vector<std::filesystem::path> folders_in(const std::filesystem::path& folder,
                                              const std::string& beginning) {
  std::vector<std::filesystem::path> found;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(folder, ignored), end; entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename();
    const bool has_number = name.size() > beginning.size() &&
                            std::isdigit(static_cast<unsigned char>(name[beginning.size()])) != 0;
    if (name.starts_with(beginning) && has_number) found.push_back(entry->path());
  }
  std::ranges::sort(found);
  return found;
}

std::string gibibytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1U << 30U));
}

}  // namespace doctor
