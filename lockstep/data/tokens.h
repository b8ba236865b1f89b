// Text for language models comes as one long file of numbers, far larger than memory, of which a rank needs
// windows here and there. The file is mapped: only the pages of the windows that are asked for are read from
// the disk, and all processes of a host have them in common.
//
//   u16   tokens of 2 bytes, little-endian, no header        what nanoGPT's prepare.py writes (train.bin)
//   u8    tokens of 1 byte                                    any text: its bytes, of which there are 256
//
//   context 4        tokens  a b c d e f g h i j
//                  window 0  a b c d e                        a b c d is read, b c d e is to be predicted
//                  window 1          e f g h i                each token but the first is predicted once
//                            the rest (j) is in no window
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "lockstep/base/file.h"

namespace lockstep {

enum class TokenType { u8, u16 };

struct TokenFileOptions {
  TokenType type = TokenType::u16;
  std::size_t context = 1024;    ///< tokens that the model sees; a window has one more
  std::uint32_t vocabulary = 0;  ///< tokens are below it; 0: not checked
};

/// Thread safety: const functions may be called at the same time. A file that is replaced (renamed over)
/// meanwhile is read on as it was. One that was shortened in place is Error{corrupt_data}; shortened while a
/// window is being copied it ends the process (SIGBUS), so replace such files by renaming.
class TokenFile {
 public:
  /// Reads no token. Throws Error: system if it cannot be opened or mapped; invalid_argument if it is no
  /// regular file, has less than one window, or the context is 0; corrupt_data for u16 tokens in an odd
  /// number of bytes.
  explicit TokenFile(const std::filesystem::path& path, const TokenFileOptions& options = {});

  const TokenFileOptions& options() const { return options_; }
  /// In the file.
  std::size_t tokens() const;
  /// Windows: (tokens() - 1) / context.
  std::size_t size() const { return (tokens() - 1) / options_.context; }

  /// Fills `window`, which has context + 1 places, with tokens i × context, i × context + 1, … Cost: one
  /// fstat(2), and a copy. Throws Error: invalid_argument if there is no such window or `window` has another
  /// size; corrupt_data (file, offset, token) for a token that is not in the vocabulary, and for a file that
  /// has become shorter.
  void read(std::size_t i, std::span<std::int64_t> window) const;

 private:
  std::size_t token_bytes() const { return options_.type == TokenType::u8 ? 1 : 2; }

  TokenFileOptions options_;
  InputFile file_;
  Mapping mapping_;
};

}  // namespace lockstep
