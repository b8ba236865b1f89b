#include "lockstep/launch/interpreter.h"

#include <elf.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace lockstep::launch {
namespace {

constexpr std::size_t longest_path = 4096;
constexpr int most_steps = 4;  // a script's interpreter may be a script again; the system follows as many

template <typename Record>
bool read_at(std::ifstream& file, std::streamoff offset, Record& record) {
  file.seekg(offset);
  return static_cast<bool>(file.read(reinterpret_cast<char*>(&record), sizeof(record)));
}

template <typename Header, typename Segment>
std::optional<Interpreter> loader_named_in(std::ifstream& file) {
  Header header{};
  if (!read_at(file, 0, header) || header.e_phentsize != sizeof(Segment)) return std::nullopt;
  for (int i = 0; i < header.e_phnum; ++i) {
    Segment segment{};
    const auto at = static_cast<std::streamoff>(header.e_phoff) + i * std::streamoff{sizeof(Segment)};
    if (!read_at(file, at, segment)) return std::nullopt;
    if (segment.p_type != PT_INTERP || segment.p_filesz > longest_path) continue;
    std::string path(segment.p_filesz, '\0');
    file.seekg(static_cast<std::streamoff>(segment.p_offset));
    if (!file.read(path.data(), static_cast<std::streamsize>(path.size()))) return std::nullopt;
    path.resize(std::min(path.find('\0'), path.size()));  // it ends with one
    return Interpreter{.path = path};
  }
  return std::nullopt;
}

std::optional<Interpreter> named_in_first_line(std::ifstream& file) {
  std::string line(longest_path, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  line.resize(std::min(line.find('\n'), line.size()));
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string::npos) return std::nullopt;
  const std::size_t end = line.find_first_of(" \t", begin);
  return Interpreter{.path = line.substr(begin, end == std::string::npos ? end : end - begin),
                     .of_script = true};
}

bool is_elf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char start[SELFMAG] = {};
  return read_at(file, 0, start) && std::memcmp(start, ELFMAG, SELFMAG) == 0;
}

std::string explain_missing(const std::string& program, const Interpreter& missing) {
  if (!missing.of_script) {
    return "the loader " + missing.path + " that " + program +
           " was linked for does not exist; it was built for another system";
  }
  if (missing.path.ends_with('\r')) {
    return "the first line of " + program +
           " ends with a carriage return, as on Windows; remove those with sed -i 's/\\r$//' " + program;
  }
  return "the interpreter " + missing.path + " in the first line of " + program + " does not exist";
}

}  // namespace

std::optional<Interpreter> interpreter_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  unsigned char start[EI_NIDENT] = {};
  file.read(reinterpret_cast<char*>(start), sizeof(start));
  file.clear();
  if (start[0] == '#' && start[1] == '!') {
    file.seekg(2);
    return named_in_first_line(file);
  }
  if (std::memcmp(start, ELFMAG, SELFMAG) != 0 || start[EI_DATA] != ELFDATA2LSB) return std::nullopt;
  if (start[EI_CLASS] == ELFCLASS32) return loader_named_in<Elf32_Ehdr, Elf32_Phdr>(file);
  return loader_named_in<Elf64_Ehdr, Elf64_Phdr>(file);
}

std::string explain_exec_failure(const std::string& path, int error_number) {
  const std::string failure = "cannot start " + path + ": ";
  std::string program = path;
  for (int step = 0; step < most_steps && error_number == ENOENT; ++step) {
    const auto interpreter = interpreter_of(program);
    if (!interpreter) break;
    if (std::error_code unknown; !std::filesystem::exists(interpreter->path, unknown))
      return failure + explain_missing(program, *interpreter);
    program = interpreter->path;
  }
  std::string why = std::generic_category().message(error_number);
  if (error_number == ENOEXEC && is_elf(path)) why += "; it was built for another kind of machine";
  if (error_number == ENOEXEC && !is_elf(path)) why += "; a script needs a first line such as #!/bin/sh";
  return failure + why;
}

}  // namespace lockstep::launch
