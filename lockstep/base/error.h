// One error type for the whole library. A caller needs to know two things that a text cannot tell a program:
// what kind of failure it was, and which rank is to blame. Everything else is in the sentence.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep {

enum class ErrorCode {
  invalid_argument,  ///< the caller passed something that can never work; nothing was started
  timeout,           ///< a deadline passed; peer() is the rank that was missing, if one alone was
  peer_lost,         ///< a rank died, or left while others still needed it; peer() is that rank
  mismatch,          ///< ranks called different operations, counts, dtypes or orders
  aborted,           ///< this group was closed by an earlier failure elsewhere
  unsupported,       ///< this build, machine or backend cannot do it
  corrupt_data,      ///< a file or message is damaged, truncated or lies about its size
  system,            ///< the operating system refused: errno's text is in the message
};

/// The code's name as it is written in messages and records, e.g. "peer_lost".
std::string_view to_string(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::optional<int> peer = std::nullopt);

  ErrorCode code() const noexcept { return code_; }
  /// The world rank that caused the failure, where exactly one is to blame.
  std::optional<int> peer() const noexcept { return peer_; }

 private:
  ErrorCode code_;
  std::optional<int> peer_;
};

[[noreturn]] void throw_invalid_argument(const std::string& message);

/// Translates errno: throws Error{system} reading "<what>: <strerror>". `error_number` 0 means: use errno.
[[noreturn]] void throw_system(const std::string& what, int error_number = 0);

/// "; ulimit -n is 1024: raise it", to follow errno's text for EMFILE, which does not say that there is a
/// limit. throw_system() adds it.
std::string open_files_hint();

}  // namespace lockstep
