// One file over HTTP, as far as it is not there already.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/data/fetch/part_file.h"

namespace lockstep::fetch {

struct DownloadOptions {
  std::chrono::milliseconds connect_timeout{};
  std::chrono::milliseconds stall_timeout{};
  Deadline deadline = Deadline::never();
  int attempts = 1;  ///< in a row that bring nothing
  std::chrono::milliseconds pause{};
  std::uint64_t most_bytes = 0;
  /// Bytes that are there, and how many there will be (0: unknown).
  std::function<void(std::uint64_t have, std::uint64_t total)> progress = {};
};

/// Adds to `part` what it lacks of `url` (HTTP's Range); a server that knows no ranges sends all again. A
/// connection that breaks off is made anew. At most five redirects, and from https only to https.
/// Throws Error: system (cannot be reached, an answer that is no 200), timeout, corrupt_data (more than
/// most_bytes), unsupported (no libcurl).
void download(const std::string& url, const PartFile& part, const DownloadOptions& options);

}  // namespace lockstep::fetch
