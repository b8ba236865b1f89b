#include "lockstep/data/tokens.h"

#include <fmt/core.h>

#include <string>

#include "lockstep/base/byte_codec.h"
#include "lockstep/base/error.h"
#include "lockstep/data/corrupt.h"

namespace lockstep {
namespace {

std::int64_t token_at(std::span<const std::byte> bytes, TokenType type) {
  if (type == TokenType::u8) return base::number_at<std::uint8_t>(bytes);
  return base::number_at<std::uint16_t>(bytes);
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
    throw_invalid_argument(
        fmt::format("{}: expected at least one window of context {} + 1 tokens, found {} tokens; use a "
                    "shorter context, or a longer file",
                    file_.name(), options_.context, tokens()));
  }
  mapping_ = file_.map();
}

std::size_t TokenFile::tokens() const { return static_cast<std::size_t>(file_.size() / token_bytes()); }

void TokenFile::read(std::size_t i, std::span<std::int64_t> window) const {
  if (i >= size()) {
    throw_invalid_argument(
        fmt::format("{} has no window {}; it has {}, counted from 0", file_.name(), i, size()));
  }
  if (window.size() != options_.context + 1) {
    throw_invalid_argument(fmt::format("{}: a window has {} tokens, found room for {}", file_.name(),
                                       options_.context + 1, window.size()));
  }
  file_.require_whole();
  std::size_t offset = i * options_.context * token_bytes();
  for (std::int64_t& token : window) {
    token = token_at(mapping_.bytes().subspan(offset), options_.type);
    if (options_.vocabulary != 0 && token >= std::int64_t{options_.vocabulary}) {
      throw_corrupt(
          file_.name(), offset, std::string("a token below ").append(std::to_string(options_.vocabulary)),
          std::to_string(token), "it was made for another vocabulary, has a header, or is no token file");
    }
    offset += token_bytes();
  }
}

}  // namespace lockstep
