// Elements multiplied by a number, as Horovod does: integers in f64, cut off towards zero.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/base/dtype.h"

namespace lockstep::c {

/// Whether a factor in f32 is as exact as the type.
bool scales_in_f32(Dtype dtype);
/// In place. `bool` is left as it is.
void scale(Dtype dtype, std::span<std::byte> elements, double factor);

}  // namespace lockstep::c
