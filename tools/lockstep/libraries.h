// The libraries that are installed beside this program, for LD_PRELOAD.
#pragma once

#include <filesystem>
#include <string>

/// Where the one of this file name is. Throws Error{invalid_argument} where it is not there.
std::filesystem::path find_library(const std::string& name);

/// The value of LD_PRELOAD that loads `library` before `others`, the value that it has; nullptr: none.
std::string preload_of(const std::filesystem::path& library, const char* others);
