#include "text.h"

#include <lockstep/base/file.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <span>
#include <stdexcept>

std::string read_text(const std::string& path) {
  const lockstep::InputFile file(path, "text");
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string made_up_text(std::uint64_t seed) {
  constexpr std::array names = {"the cat", "a dog", "the old man", "her sister", "nobody", "a small bird"};
  constexpr std::array verbs = {"sees", "follows", "likes", "does not know", "waits for"};
  std::mt19937_64 random(seed);
  const auto one_of = [&](const auto& words) { return std::string(words[random() % words.size()]); };
  std::string text;
  while (text.size() < 20'000) text += one_of(names) + ' ' + one_of(verbs) + ' ' + one_of(names) + ".\n";
  return text;
}

Text encode(const std::string& text, const std::string& name, std::int64_t context) {
  const auto characters = static_cast<std::int64_t>(text.size());
  const std::int64_t held_out = characters / 10, needed = 10 * (context + 1);
  if (held_out < context + 1) {
    throw std::invalid_argument(name + ": found " + std::to_string(characters) +
                                " characters, expected at least " + std::to_string(needed) +
                                ", since a tenth is to hold a window of " + std::to_string(context) +
                                " and one more; take a longer text or a smaller --context");
  }
  const std::set<char> kinds(text.begin(), text.end());
  Text result{.symbols = std::string(kinds.begin(), kinds.end()), .train = {}, .validation = {}};
  std::vector<std::int64_t> numbers(text.size());
  std::ranges::transform(text, numbers.begin(), [&](char character) {
    return static_cast<std::int64_t>(result.symbols.find(character));
  });
  const auto whole = torch::tensor(numbers);
  result.train = whole.narrow(0, 0, characters - held_out);
  result.validation = whole.narrow(0, characters - held_out, held_out);
  return result;
}

double bigram_loss(const Text& text) {
  const auto symbols = static_cast<std::int64_t>(text.symbols.size());
  const auto bigrams = [&](const torch::Tensor& part) {  // each pair of neighbours as one number
    return part.narrow(0, 0, part.size(0) - 1) * symbols + part.narrow(0, 1, part.size(0) - 1);
  };
  const auto counts =
      torch::bincount(bigrams(text.train), {}, symbols * symbols).view({symbols, symbols}) + 1;
  const auto probabilities = counts.to(torch::kFloat64) / counts.sum(1, /*keepdim=*/true);
  return -probabilities.log().view({-1}).index_select(0, bigrams(text.validation)).mean().item<double>();
}
