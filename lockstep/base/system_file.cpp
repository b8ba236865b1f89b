#include "lockstep/base/system_file.h"

#include <algorithm>
#include <fstream>

namespace lockstep::base {

std::string system_text(const std::filesystem::path& path, std::size_t most) {
  std::ifstream file(path, std::ios::binary);
  std::string text(most, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

std::string system_line(const std::filesystem::path& path) {
  const std::string text = system_text(path);
  return text.substr(0, text.find('\n'));
}

}  // namespace lockstep::base
