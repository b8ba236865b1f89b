// Which server has what: the model's variables one after the other, cut into as many stretches as there are servers, of about as
// many bytes each. Large variables are cut between rows.
//
//   variables   [ embedding (by rows)        ]   [ weight          ][ bias ][ weight       ]
//   server 0    [ rows 0 - 499 ]                 [ rows 0 - 255    ]
//   server 1                   [ rows 500 - 999]                 [   rows 256 - 511 | ... ]
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/train/replicas/named_tensor.h"

namespace lockstep::ps {

/// Rows of a variable. What has no dimensions is one row.
struct Piece {
  std::size_t variable = 0;
  std::int64_t first_row = 0, rows = 0;
  /// These rows of a tensor of the variable's size.
  torch::Tensor of(const torch::Tensor& whole) const;
  friend bool operator==(const Piece&, const Piece&) = default;
};

struct Variable {
  std::string name;
  torch::ScalarType type = torch::kFloat32;
  std::vector<std::int64_t> sizes;
  /// A table, of which a worker pulls and pushes some rows at a time.
  bool is_table = false;

  std::int64_t rows() const { return sizes.empty() ? 1 : sizes[0]; }
  std::int64_t row_elements() const;
  std::vector<std::int64_t> sizes_of(const Piece& piece) const;
};

/// The same on all ranks that have the same variables.
class Placement {
 public:
  Placement(std::vector<Variable> variables, int servers);

  const std::vector<Variable>& variables() const { return variables_; }
  int servers() const { return static_cast<int>(pieces_.size()); }
  /// What a server has, in the order of the variables.
  const std::vector<Piece>& pieces(int server) const { return pieces_[static_cast<std::size_t>(server)]; }
  std::uint64_t bytes(int server) const;

  /// Where the variables that are no tables lie on a worker: in one array for each type, in their order.
  struct Stretch {
    torch::ScalarType type;
    std::int64_t begin, elements;  ///< in that type's array
  };
  /// A server's part of each array, which is one stretch; empty ones are not listed.
  std::vector<Stretch> stretches(int server) const;
  /// A server's pieces in `arrays`, which are of the size of its stretches; undefined for tables.
  std::vector<torch::Tensor> views(int server, std::span<const torch::Tensor> arrays) const;

 private:
  std::vector<Variable> variables_;
  std::vector<std::vector<Piece>> pieces_;
};

/// Of trainable parameters. Throws Error{invalid_argument} for tables that are no parameter, or have no rows.
std::vector<Variable> variables_of(std::span<const NamedTensor> parameters,
                                   std::span<const std::string> tables);

}  // namespace lockstep::ps
