#include "lockstep/train/tensor/openmp_runtimes.h"

#include <link.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string_view>

#include "lockstep/base/log.h"

namespace lockstep {

std::vector<std::string> loaded_files() {
  std::vector<std::string> files;
  const auto add = [](dl_phdr_info* info, std::size_t, void* into) {
    if (info->dlpi_name != nullptr)
      static_cast<std::vector<std::string>*>(into)->emplace_back(info->dlpi_name);
    return 0;
  };
  ::dl_iterate_phdr(add, &files);
  return files;
}

std::optional<std::string> find_two_openmp_runtimes(std::span<const std::string> files) {
  constexpr std::array<std::string_view, 3> names = {"libgomp", "libiomp5", "libomp"};  // GCC, Intel, LLVM
  std::vector<std::string> found;
  for (const std::string& file : files) {
    const std::string name = std::filesystem::path(file).filename();
    const bool is_one = std::ranges::any_of(names, [&](std::string_view known) {
      return name.starts_with(known) && name.find_first_of(".-", known.size()) == known.size();
    });
    if (is_one && std::ranges::find(found, file) == found.end()) found.push_back(file);
  }
  if (found.size() < 2) return std::nullopt;
  std::string list = found.front();
  for (std::size_t i = 1; i < found.size(); ++i) list += (i + 1 == found.size() ? " and " : ", ") + found[i];
  return "this process has loaded " + std::to_string(found.size()) + " OpenMP runtimes, " + list +
         "; each has threads of its own, which take the rank's cores from each other: link everything with "
         "the "
         "one that libtorch uses, or set OMP_NUM_THREADS=1";
}

void warn_of_two_openmp_runtimes() {
  static std::once_flag once;
  std::call_once(once, [] {
    const char* const threads = std::getenv("OMP_NUM_THREADS");
    if (threads != nullptr && std::string_view(threads) == "1") return;
    if (const auto text = find_two_openmp_runtimes(loaded_files())) log::warning(*text);
  });
}

}  // namespace lockstep
