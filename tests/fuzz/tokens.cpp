// A file of tokens: whatever it holds, each window is what stands there, in the vocabulary, or refused.
#include "lockstep/data/tokens.h"

#include "lockstep/base/error.h"
#include "tests/fuzz/content_file.h"
#include "tests/fuzz/script.h"

namespace lockstep::fuzz::tokens {
namespace {

TokenFileOptions options_of(Script& script) {
  TokenFileOptions options;
  options.type = script.below(2) == 0 ? TokenType::u8 : TokenType::u16;
  // Some of all numbers, because the product of window and context is where an overflow would be.
  const bool is_huge = script.below(8) == 0;
  options.context = script.number(is_huge ? 8 : 1);
  options.vocabulary = static_cast<std::uint32_t>(script.number(is_huge ? 4 : 2));
  return options;
}

std::int64_t token_at(Input content, std::size_t i, TokenType type) {
  const auto byte = [&](std::size_t at) { return std::to_integer<std::int64_t>(content[at]); };
  return type == TokenType::u8 ? byte(i) : byte(2 * i) + 256 * byte(2 * i + 1);
}

void read(const std::string& path, Input content, const TokenFileOptions& options) {
  const TokenFile file(path, options);
  const std::size_t token_bytes = options.type == TokenType::u8 ? 1 : 2;
  require(file.tokens() * token_bytes == content.size(), "tokens are all there is");
  require(file.size() > 0, "there is a window");
  require(file.tokens() - 1 - file.size() * options.context < options.context, "no window is left out");
  std::vector<std::int64_t> window(options.context + 1);
  for (std::size_t i = 0; i < file.size(); ++i) {
    bool is_in_vocabulary = true;
    for (std::size_t k = 0; k < window.size(); ++k) {
      const auto token = token_at(content, i * options.context + k, options.type);
      is_in_vocabulary = is_in_vocabulary && (options.vocabulary == 0 || token < options.vocabulary);
    }
    try {
      file.read(i, window);
      require(is_in_vocabulary, "tokens are in the vocabulary");
      for (std::size_t k = 0; k < window.size(); ++k)
        require(window[k] == token_at(content, i * options.context + k, options.type), "and as they stand");
    } catch (const Error& error) {
      require(error.code() == ErrorCode::corrupt_data && !is_in_vocabulary, "only tokens are refused");
    }
  }
}

}  // namespace

int run_one(Input input) {
  static const ContentFile file;
  Script script(input);
  const TokenFileOptions options = options_of(script);
  const Input content = script.bytes(input.size());
  file.replace(content);
  try {
    read(file.path(), content, options);
  } catch (const Error& error) {
    const bool is_odd = options.type == TokenType::u16 && content.size() % 2 != 0;
    require(error.code() ==
                (is_odd && options.context != 0 ? ErrorCode::corrupt_data : ErrorCode::invalid_argument),
            "a damaged file is corrupt data, and one without a window an invalid argument");
  }
  return 0;
}

}  // namespace lockstep::fuzz::tokens
