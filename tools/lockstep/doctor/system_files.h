// Small files by which the system tells about itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace doctor {

/// The first line; "" where there is none.
std::string line_of(const std::filesystem::path& path);

/// What is in `folder` and begins with `beginning` and a number, in the order of these; empty where there is none.
std::vector<std::filesystem::path> folders_in(const std::filesystem::path& folder,
                                              const std::string& beginning);

/// "12.3 GiB".
std::string gibibytes(std::uint64_t bytes);

}  // namespace doctor
