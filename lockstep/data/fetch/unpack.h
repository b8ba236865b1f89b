// What is in a publisher's file, into a folder: the files that are expected there, and no others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "lockstep/data/fetch/published.h"

namespace lockstep::fetch {

/// Writes `archive`'s files into `folder`, each whole, all of them or none (but for a crash between the
/// first and the last rename). `fd` holds a .gz, or a .tar.gz where the files are members. Members that are
/// not expected stay in it; one with a path that leads out, or that is a link or a device, is refused.
/// Throws Error: corrupt_data, with the member; system; unsupported (no libarchive).
void unpack(int fd, const Published& archive, const std::filesystem::path& folder, std::uint64_t most_bytes);

}  // namespace lockstep::fetch
