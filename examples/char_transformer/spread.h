// Four ways to spread one model over the ranks, which the training need not tell apart.
#pragma once

#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <memory>
#include <string>
#include <vector>

#include "transformer.h"

/// Calls are collective, but for the first three.
class Spread {
 public:
  virtual ~Spread() = default;

  virtual std::vector<torch::Tensor> parameters() const = 0;  ///< this rank's
  virtual void train(bool on) = 0;
  /// How many parts of the data there are, and which is this rank's.
  virtual int shares() const = 0;
  virtual int share() const = 0;

  /// Leaves clipped gradients of the mean loss in the parameters; returns this rank's loss.
  virtual double gradients(const torch::Tensor& seen, const torch::Tensor& next) = 0;
  /// After each step of the optimizer.
  virtual void stepped() {}
  /// [N, T, symbols], without gradients.
  virtual torch::Tensor scores(const torch::Tensor& seen) = 0;
};

struct SpreadOptions {
  std::string way = "data";  ///< or diloco, tensor or pipeline
  int every = 25;            ///< steps between two averages, of diloco
  int micro_batches = 4;     ///< of a pipeline
  torch::Device device = torch::kCPU;
};

/// Collective. Throws std::invalid_argument where the shape cannot be spread so.
std::unique_ptr<Spread> spread(const TransformerShape& shape, const lockstep::Group& world,
                               const SpreadOptions& options);

/// Nats per character.
torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& next);
