#include "lockstep/train/data_parallel/sparse_average.h"

#include <array>
#include <numeric>
#include <vector>

#include "lockstep/group/collectives.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

/// Everybody's rows of `mine`, in rank order; `counts`: how many each rank has.
torch::Tensor gather_rows(const Group& group, const torch::Tensor& mine,
                          const std::vector<std::size_t>& counts) {
  auto sizes = mine.sizes().vec();
  sizes[0] = static_cast<std::int64_t>(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  const auto all = torch::empty(sizes, mine.options());
  const auto row_bytes = static_cast<std::size_t>(c10::multiply_integers(mine.sizes().slice(1))) *
                         static_cast<std::size_t>(mine.element_size());
  all_gather_bytes(group, readable_bytes(mine, "a sparse gradient"), writable_bytes(all, "a sparse gradient"),
                   row_bytes, counts)
      .wait();
  return all;
}

}  // namespace

void average_sparse(const Group& group, torch::Tensor parameter, bool has_gradient, int contributors) {
  const torch::Tensor mine = has_gradient && parameter.grad().defined()
                                 ? parameter.grad().to(torch::kCPU).coalesce()
                                 : torch::Tensor();
  const torch::Tensor rows =
      mine.defined() ? mine.indices().t().contiguous() : torch::empty({0, 1}, torch::dtype(torch::kInt64));
  auto sizes = parameter.sizes().vec();
  sizes[0] = 0;
  const torch::Tensor values = mine.defined() ? mine.values().contiguous()
                                              : torch::empty(sizes, torch::dtype(parameter.scalar_type()));
  const std::array<std::size_t, 1> count = {static_cast<std::size_t>(rows.size(0))};
  std::vector<std::size_t> counts(static_cast<std::size_t>(group.size()));
  all_gather(group, count, counts).wait();
  const auto all_rows = gather_rows(group, rows, counts);
  const auto all_values = gather_rows(group, values, counts).div_(contributors);
  parameter.mutable_grad() =
      torch::sparse_coo_tensor(all_rows.t(), all_values, parameter.sizes()).coalesce().to(parameter.device());
}

}  // namespace lockstep
