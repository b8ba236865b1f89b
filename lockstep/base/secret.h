// A job's secret: what its ranks know and strangers do not. How two sides prove to each other that they know it is in
// base/proof.h.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"

namespace lockstep {

/// 16 to 4096 bytes that are never printed, and zeroed when they go.
class Secret {
 public:
  static constexpr std::size_t min_bytes = 16;
  static constexpr std::size_t max_bytes = 4096;

  /// 32 bytes from the system's generator.
  static Secret random();
  /// Error{invalid_argument} unless the size is within the limits.
  static Secret from_bytes(std::span<const std::byte> bytes);
  /// Reads LOCKSTEP_SECRET_FILE's file. One line end at its end is not part of the secret, so that a copy
  /// made in an editor is the same secret. Error{invalid_argument}: a file that group or others may touch,
  /// one that belongs to somebody else, one that is no regular file, too short or too long; Error{system}:
  /// unreadable.
  static Secret from_file(const std::string& path);
  /// Reads what to_memfd() of the parent process made, from offset 0, without moving a shared file position.
  /// Does not take the descriptor.
  static Secret from_inherited_fd(int fd);

  Secret(const Secret& other) = default;
  Secret(Secret&& other) noexcept = default;
  Secret& operator=(Secret other) noexcept;
  ~Secret();

  /// An anonymous file with the secret, sealed against every change, close-on-exec.
  UniqueFd to_memfd() const;

  std::span<const std::byte> bytes() const { return bytes_; }
  /// In constant time.
  friend bool operator==(const Secret& a, const Secret& b);

 private:
  explicit Secret(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  std::vector<std::byte> bytes_;
};

}  // namespace lockstep
