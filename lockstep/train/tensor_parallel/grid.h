// The ranks of a world as a grid, for models that are spread in several ways at once.
#pragma once

#include "lockstep/group/group.h"

namespace lockstep {

/// How many ranks in each direction; their product is the world's size.
struct GridShape {
  int data = 1;      ///< replicas
  int pipeline = 1;  ///< stages
  int tensor = 1;    ///< parts of a layer
};

/// This rank's group in each direction. Ranks that are next to each other share layers (tensor), since these talk the most;
/// then come the stages of one replica, then replicas.
struct Grid {
  /// Collective over `world`. Throws Error{invalid_argument} where the product of the shape is not its size.
  Grid(const Group& world, const GridShape& shape);

  Group data, pipeline, tensor;
};

}  // namespace lockstep
