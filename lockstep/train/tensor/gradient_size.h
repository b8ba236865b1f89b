// What decides where a gradient is put, in buckets or in one flat array: no more is asked of a parameter.
#pragma once

#include <cstddef>

#include "lockstep/base/dtype.h"

namespace lockstep {

struct GradientSize {
  std::size_t elements = 0;
  Dtype dtype = Dtype::f32;
};

}  // namespace lockstep
