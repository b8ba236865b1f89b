// A text as numbers, and what the simplest model would make of it: the one that looks one character back.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>

struct Text {
  std::string symbols;       ///< each character that occurs, once
  torch::Tensor train;       ///< the first nine tenths, as places in `symbols`; int64
  torch::Tensor validation;  ///< the rest
};

/// The bytes of a file. Throws lockstep::Error if it cannot be read.
std::string read_text(const std::string& path);

/// Sentences of one make, for where no text is at hand: the same for the same seed.
std::string made_up_text(std::uint64_t seed);

/// Throws std::invalid_argument, naming `name`, for a text that has not room for a window of `context`
/// characters and the one after them in the validation text.
Text encode(const std::string& text, const std::string& name, std::int64_t context);

/// In nats per character of the validation text, after the first: how many bigrams of each kind the training
/// text has, and one more, say how likely they are.
double bigram_loss(const Text& text);
