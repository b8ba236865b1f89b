#include "mpitrace/source_lines.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "mpitrace/output_of.h"

namespace lockstep::mpitrace {
namespace {

constexpr std::size_t most_addresses = 512;  // on one command line

/// As this process has it loaded; "?" where it has not.
std::string symbol(const std::string& file, std::uint64_t offset) {
  struct Search {
    const std::string& file;
    std::uint64_t base = 0;
    bool is_found = false;
  } search{.file = file};
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* asked) {
        auto& wanted = *static_cast<Search*>(asked);
        const std::string name = object->dlpi_name == nullptr ? "" : object->dlpi_name;
        char program[4096] = {};
        const bool is_it = name == wanted.file ||
                           (name.empty() && ::readlink("/proc/self/exe", program, sizeof(program) - 1) > 0 &&
                            wanted.file == program);
        if (!is_it) return 0;
        wanted.base = object->dlpi_addr;
        wanted.is_found = true;
        return 1;
      },
      &search);
  Dl_info info{};
  const bool is_known = search.is_found &&
                        ::dladdr(reinterpret_cast<void*>(search.base + offset), &info) != 0 &&
                        info.dli_sname != nullptr;
  if (!is_known) return "?";
  return fmt::format("{}+{:#x}", info.dli_sname,
                     search.base + offset - reinterpret_cast<std::uint64_t>(info.dli_saddr));
}

}  // namespace

std::map<std::pair<std::string, std::uint64_t>, std::string> source_lines(
    const std::vector<std::pair<std::string, std::uint64_t>>& places) {
  std::map<std::pair<std::string, std::uint64_t>, std::string> lines;
  std::map<std::string, std::vector<std::uint64_t>> by_file;
  for (const auto& [file, offset] : places) by_file[file].push_back(offset);
  for (const auto& [file, offsets] : by_file) {
    for (std::size_t first = 0; first < offsets.size(); first += most_addresses) {
      const std::size_t end = std::min(first + most_addresses, offsets.size());
      std::vector<std::string> words = {"addr2line", "-f", "-C", "-e", file};
      // The call is before the address that it returns to.
      for (std::size_t i = first; i < end; ++i) words.push_back(fmt::format("{:#x}", offsets[i] - 1));
      std::istringstream output(output_of(words));
      std::string function, line;
      for (std::size_t i = first; i < end; ++i) {
        const bool is_there = std::getline(output, function) && std::getline(output, line);
        const bool has_line = is_there && !line.starts_with("??");
        if (!is_there || function == "??") function = symbol(file, offsets[i] - 1);
        lines[{file, offsets[i]}] = has_line ? function + " at " + line : function;
      }
    }
  }
  return lines;
}

}  // namespace lockstep::mpitrace
