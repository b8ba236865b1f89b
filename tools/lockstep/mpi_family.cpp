#include "mpi_family.h"

#include <elf.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "mpitrace/output_of.h"

namespace {

namespace fs = std::filesystem;
using lockstep::mpitrace::Family;
using lockstep::mpitrace::output_of;

/// As a shell finds it; "" where there is none.
fs::path program_named(const std::string& word) {
  const auto is_program = [](const fs::path& path) {
    std::error_code error;
    return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
  };
  if (word.find('/') != std::string::npos) return is_program(word) ? fs::path(word) : fs::path();
  const char* const folders = std::getenv("PATH");
  std::istringstream list(folders == nullptr ? "" : folders);
  for (std::string folder; std::getline(list, folder, ':');) {
    if (is_program(fs::path(folder) / word)) return fs::path(folder) / word;
  }
  return {};
}

/// The loader that a dynamically linked program names; "" for others: a static one would run if asked.
std::string loader_of(const fs::path& program) {
  std::ifstream file(program, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof(header))) return "";
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return "";
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    file.seekg(static_cast<std::streamoff>(header.e_phoff) + i * static_cast<std::streamoff>(sizeof(part)));
    if (!file.read(reinterpret_cast<char*>(&part), sizeof(part))) return "";
    if (part.p_type != PT_INTERP || part.p_filesz > PATH_MAX) continue;
    std::string path(part.p_filesz, '\0');
    file.seekg(static_cast<std::streamoff>(part.p_offset));
    if (!file.read(path.data(), static_cast<std::streamsize>(path.size()))) return "";
    path.resize(std::min(path.find('\0'), path.size()));  // which ends it
    return path;
  }
  return "";
}

std::optional<Family> family_of_program(const std::string& word) {
  const fs::path program = program_named(word);
  if (program.empty()) return std::nullopt;
  const std::string loader = loader_of(program);
  if (loader.empty()) return std::nullopt;
  std::istringstream words(output_of({loader, "--list", fs::absolute(program)}));
  for (std::string library; words >> library;) {
    if (const auto family = lockstep::mpitrace::family_of_library(library)) return family;
  }
  return std::nullopt;
}

std::optional<Family> family_of_launcher(const std::string& word) {
  if (program_named(word).empty()) return std::nullopt;
  const std::string text = output_of({word, "--version"});
  if (text.find("Open MPI") != std::string::npos || text.find("OpenRTE") != std::string::npos ||
      text.find("PRRTE") != std::string::npos)
    return Family::openmpi;
  if (text.find("HYDRA") != std::string::npos || text.find("Intel(R) MPI") != std::string::npos ||
      text.find("MVAPICH") != std::string::npos)
    return Family::mpich;
  return std::nullopt;
}

bool is_launcher(const std::string& word) {
  const std::string name = fs::path(word).filename();
  return name.starts_with("mpirun") || name.starts_with("mpiexec") || name == "prterun" || name == "orterun";
}

}  // namespace

std::optional<Family> family_of_command(const std::vector<std::string>& command) {
  for (const std::string& word : command) {
    if (const auto family = family_of_program(word)) return family;
  }
  return !command.empty() && is_launcher(command.front()) ? family_of_launcher(command.front())
                                                          : std::nullopt;
}

bool is_open_mpi_launcher(const std::string& launcher) {
  return is_launcher(launcher) && family_of_launcher(launcher) == Family::openmpi;
}
