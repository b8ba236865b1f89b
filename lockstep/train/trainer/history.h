// What a training was like, epoch by epoch: what Trainer::fit() returns, a curve shows, and a checkpoint of a
// Trainer carries along.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace lockstep {

/// Figures are about all ranks, the same on each; NaN where nothing was measured.
struct EpochResult {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

  std::uint64_t epoch = 0;             ///< the first is 0
  double train_loss = unknown;         ///< mean over the epoch's samples, each at its step's parameters
  double eval_loss = unknown;          ///< mean over the samples of the evaluation after the epoch
  double eval_accuracy = unknown;      ///< part of these samples whose class was found, 0 to 1
  double images_per_second = unknown;  ///< of all ranks while they train; evaluation left out
  double learning_rate = unknown;      ///< of the epoch's last step, of the first group of parameters
};

/// As lines of text; of more than 1 MiB (some 8,000 epochs) the latest.
std::string encode_history(const std::vector<EpochResult>& history);
/// Throws Error{corrupt_data}, beginning with `what`, unless it is encode_history()'s.
std::vector<EpochResult> decode_history(const std::string& text, const std::string& what);

}  // namespace lockstep
