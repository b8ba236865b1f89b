// write(2) writes what it likes, is interrupted, and ends the process where a file grows past RLIMIT_FSIZE.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

/// Writes all of `bytes`, wherever the descriptor stands. Returns 0, or errno; a file beyond RLIMIT_FSIZE is
/// EFBIG, and not the end of the process by SIGXFSZ. Some of `bytes` may be written then.
int write_all(int fd, std::span<const std::byte> bytes);

}  // namespace lockstep
