// Adasum of several vectors of bytes: of two, adasum(a, b) = (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b (Maleki et al. 2021), which is
// their sum where they are orthogonal and their mean where they are parallel. Of more than two it is that of pairs: of the vectors
// after the largest power of two with the first ones, then of neighbours, then of neighbours' results. train/horovod/adasum.h does the
// same on tensors, without a copy of everything on each rank.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/base/dtype.h"

namespace lockstep::c {

/// `vectors`: `ranks` of them, one after the other, each made of parts of these bytes; the first one becomes the Adasum, part by part, in
/// f64 and rounded with each pair. REQUIRES: a floating-point type.
void adasum(Dtype dtype, std::span<std::byte> vectors, std::size_t ranks, std::span<const std::size_t> parts);

}  // namespace lockstep::c
