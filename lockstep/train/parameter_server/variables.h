// A server's variables, and the optimizer that updates them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "lockstep/train/parameter_server/placement.h"

namespace lockstep::ps {

/// Makes one of the parameters that it is to update.
using OptimizerFactory = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

/// What one push brings for a server.
struct Gradients {
  std::vector<torch::Tensor>
      pieces;  ///< dense ones, as this server has pieces; undefined: none, or one of a table
  struct Rows {
    std::size_t variable;
    torch::Tensor indices, values;  ///< of the whole table
  };
  std::vector<Rows> rows;
};

/// Thread safe: a read sees an update wholly or not at all.
class Variables {
 public:
  /// `values`: of all variables; what is this server's is copied.
  Variables(const Placement& placement, int server, const std::vector<torch::Tensor>& values,
            const OptimizerFactory& make_optimizer);

  /// Of arrays like stretches() says.
  std::vector<torch::Tensor> arrays() const;
  void read(std::span<const torch::Tensor> into) const;
  /// Rows of a table by their numbers in it. Throws Error{invalid_argument} for those that are not here.
  torch::Tensor read_rows(std::size_t variable, const torch::Tensor& indices) const;

  /// One update by one push.
  void apply(Gradients& gradients);
  /// One update by the average, which is the same bits in whatever order pushes came: of the first to the last here. Where some have no
  /// gradient for a variable, it counts as zero. Writes into the pieces of the first that has one.
  void apply_average(std::span<Gradients* const> all);

  /// Values and the optimizer's state, an archive with the number of this save (saved_part.h).
  std::string saved(std::uint64_t number) const;
  /// Throws Error: corrupt_data, invalid_argument (of another model).
  void load(const std::string& path);

 private:
  void step(Gradients& gradients);

  const Placement& placement_;
  std::vector<Piece> pieces_;
  std::vector<Placement::Stretch> stretches_;
  mutable std::mutex mutex_;
  std::vector<torch::Tensor> arrays_;
  std::vector<torch::Tensor> parameters_;  // of each piece
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace lockstep::ps
