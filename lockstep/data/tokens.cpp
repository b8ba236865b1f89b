#include "lockstep/data/tokens.h"

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/corrupt.h"

namespace lockstep {
namespace {

std::int64_t token_at(const std::byte* bytes, TokenType type) {
  const auto low = std::to_integer<std::int64_t>(bytes[0]);
  return type == TokenType::u8 ? low : low | (std::to_integer<std::int64_t>(bytes[1]) << 8);
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path, const TokenFileOptions& options)
    : options_(options), file_(path, "token file") {
  if (options_.context == 0)
    throw_invalid_argument(file_.name() + ": expected a context of at least 1 token, found 0");
  const std::uint64_t left_over = file_.size() % token_bytes();
  if (left_over != 0) {
    throw_corrupt(file_.name(), file_.size() - left_over, "a token of 2 bytes",
                  "1 byte and the end of the file",
                  "it is truncated, or no file of u16 tokens: make or get it again");
  }
  if (tokens() <= options_.context) {
    throw_invalid_argument(file_.name() + ": expected at least one window of context " +
                           std::to_string(options_.context) + " + 1 tokens, found " +
                           std::to_string(tokens()) + " tokens; use a shorter context, or a longer file");
  }
  mapping_ = file_.map();
}

std::size_t TokenFile::tokens() const { return static_cast<std::size_t>(file_.size() / token_bytes()); }

void TokenFile::read(std::size_t i, std::span<std::int64_t> window) const {
  if (i >= size()) {
    throw_invalid_argument(file_.name() + " has no window " + std::to_string(i) + "; it has " +
                           std::to_string(size()) + ", counted from 0");
  }
  if (window.size() != options_.context + 1) {
    throw_invalid_argument(file_.name() + ": a window has " + std::to_string(options_.context + 1) +
                           " tokens, found room for " + std::to_string(window.size()));
  }
  file_.require_whole();
  std::size_t offset = i * options_.context * token_bytes();
  for (std::int64_t& token : window) {
    token = token_at(mapping_.data() + offset, options_.type);
    if (options_.vocabulary != 0 && token >= std::int64_t{options_.vocabulary}) {
      throw_corrupt(
          file_.name(), offset, std::string("a token below ").append(std::to_string(options_.vocabulary)),
          std::to_string(token), "it was made for another vocabulary, has a header, or is no token file");
    }
    offset += token_bytes();
  }
}

}  // namespace lockstep
