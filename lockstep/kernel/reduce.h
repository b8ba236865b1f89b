// The arithmetic of collectives: several buffers become one, and the result goes to several places. Each
// input is read once and each output written once, whatever their number, because memory traffic is all that
// it costs.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/base/dtype.h"
#include "lockstep/base/reduce_op.h"

namespace lockstep::kernel {

/// Combines `sources` element by element, in the order given (source 0 first), and writes the result to every
/// destination:
///   destination[d][i] = round((source[0][i] op source[1][i] op ...) * scale)
///
/// - Halves are accumulated in f32 and rounded once, to nearest even. Integers wrap.
/// - A NaN in any source gives a NaN, with min and max too; its payload is unspecified. Of equal numbers (-0
///   and +0) min and max keep the last.
/// - `scale` is applied in f32 (halves, f32, complex64) or in f64 (f64, complex128), with one rounding there.
///   Floating-point and complex types only: the others need 1.0.
/// - `average` is `sum`: the caller puts 1/ranks into `scale`.
/// - A complex number is its two parts. A bool is a byte, 0 or 1; its sum and max are or, its product and min
///   are and.
/// - One source is copied, bit for bit, where `scale` is 1.0.
///
/// The bits of the result depend on nothing but the arguments: not on the machine's vectors, nor on where a
/// buffer starts or how a caller cuts it into calls.
///
/// REQUIRES: at least one source and one destination; all aligned as the type is (alignment_of). A
/// destination may be one of the sources or another destination (the same address), but may not overlap one
/// partly. Throws Error{invalid_argument} for what supports() denies, and for a `scale` that the type has
/// not. Thread safe, as long as no other thread uses the buffers.
void reduce(Dtype dtype, ReduceOp op, std::size_t elements, std::span<const std::byte* const> sources,
            std::span<std::byte* const> destinations, double scale = 1.0);

/// Whether reduce() does `op` on elements of type `dtype`:
///
///              sum  product, min, max  average  band, bor, bxor  custom
///   integers    x           x                          x
///   bool        x           x                          x
///   floats      x           x             x
///   complex     x                         x
bool supports(Dtype dtype, ReduceOp op);

}  // namespace lockstep::kernel
