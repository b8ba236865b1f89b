// A worker's (or the coordinator's) side: its model in the servers' hands.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/train/parameter_server/crew.h"
#include "lockstep/train/parameter_server/messages.h"
#include "lockstep/train/parameter_server/placement.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/tensor/flat_tensors.h"

namespace lockstep::ps {

/// Thread safety: none.
class Client {
 public:
  /// Collective with each server. The parameters lie in one array for each type from now on. Throws Error{mismatch}.
  Client(Crew& crew, const Placement& placement, std::vector<NamedTensor> parameters, std::uint64_t facts);

  /// The servers' values into the parameters, but for tables.
  void pull();
  /// These rows of a table into it.
  void pull_rows(std::size_t table, const torch::Tensor& indices);
  /// The parameters' gradients to the servers; there are none afterwards.
  struct Origin {
    std::uint64_t task = 0, number = 0, settled_below = 0;  ///< see Header
  };
  void push(const Origin& origin);
  /// Asks each server for rest, work, leave or end.
  void tell(Kind kind);
  /// Each server into a file of its own: the path of `number`.
  template <class PathOf>
  void save(const PathOf& path_of) {
    for (std::size_t server = 0; server < lines_.size(); ++server)
      (void)lines_[server].ask({.kind = Kind::save}, nullptr, path_of(static_cast<int>(server)));
  }

 private:
  struct Rows {
    std::size_t table;
    torch::Tensor indices, values;
  };
  std::vector<Rows> rows_of_gradients() const;

  const Placement& placement_;
  std::vector<NamedTensor> parameters_;
  std::vector<Line> lines_;              // to each server
  std::vector<ArenaTensors> gradients_;  // for each server
  FlatTensors values_;
};

}  // namespace lockstep::ps
