// Small files by which the system tells about itself and its processes, in /proc and /sys.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace lockstep::base {

/// What is in it, at most `most` bytes; "" where it cannot be read.
std::string system_text(const std::filesystem::path& path, std::size_t most = 16384);

/// The first line, without its end.
std::string system_line(const std::filesystem::path& path);

}  // namespace lockstep::base
