// A worker's (or the coordinator's) side: its model in the servers' hands.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/train/parameter_server/crew.h"
#include "lockstep/train/parameter_server/messages.h"
#include "lockstep/train/parameter_server/placement.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/tensor/flat_tensors.h"

namespace lockstep {
class SharedHeap;
}

namespace lockstep::ps {

/// Thread safety: none.
class Client {
 public:
  /// Collective with each server. The parameters lie in one array for each type from now on. Throws Error{mismatch}.
  Client(Crew& crew, const Placement& placement, std::vector<NamedTensor> parameters, std::uint64_t facts);

  ~Client();

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
  /// Each server into a file of its own, of which all are there or none: see saved_part.h.
  void save(const std::function<std::string(int server)>& path_of);

 private:
  struct Rows {
    std::size_t table;
    torch::Tensor indices, values;
  };
  void lay_out();
  void greet(std::size_t server, std::uint64_t facts);
  /// Where the server finds the gradient of its piece, moved there if need be.
  std::uint64_t place_gradient(std::size_t server, std::size_t piece);
  std::vector<Rows> rows_of_gradients() const;

  const Placement& placement_;
  std::vector<NamedTensor> parameters_;
  std::vector<Line> lines_;  // to each server
  struct Stretch {
    torch::Tensor value;
    bool is_shared;  // the server writes it where it is
  };
  std::vector<std::vector<Stretch>> stretches_;  // of each server
  struct Elsewhere {
    torch::Tensor parameter, pulled;
  };
  std::vector<Elsewhere> elsewhere_;  // those that are not in main memory, and what is pulled for them
  std::vector<std::vector<torch::Tensor>>
      gradients_;                     // of each server's pieces: where they lie if they were born elsewhere
  std::unique_ptr<SharedHeap> heap_;  // where they are born, so that the first server reads them there
};

}  // namespace lockstep::ps
