#include "lockstep/train/tensor_parallel/grid.h"

#include <c10/util/StringUtil.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

int require_product(const Group& world, const GridShape& shape) {
  if (shape.data < 1 || shape.pipeline < 1 || shape.tensor < 1 ||
      std::int64_t{shape.data} * shape.pipeline * shape.tensor != world.size())
    throw_invalid_argument(c10::str("Grid: ", shape.data, " x ", shape.pipeline, " x ", shape.tensor,
                                    " (data, pipeline, tensor) on ", world.size(),
                                    " ranks; the product is to be their number"));
  return world.rank();
}

}  // namespace

Grid::Grid(const Group& world, const GridShape& shape) {
  const int rank = require_product(world, shape);
  const int in_tensor = rank % shape.tensor, in_pipeline = rank / shape.tensor % shape.pipeline;
  const int in_data = rank / (shape.tensor * shape.pipeline);
  tensor = *world.split(rank / shape.tensor);
  pipeline = *world.split(in_data * shape.tensor + in_tensor);
  data = *world.split(in_pipeline * shape.tensor + in_tensor);
}

}  // namespace lockstep
