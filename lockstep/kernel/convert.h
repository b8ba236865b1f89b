// Between f32 and the halves: how numbers cross a network in half as many bytes.
#pragma once

#include <cstddef>

#include "lockstep/base/dtype.h"

namespace lockstep::kernel {

/// What reduce() does with one source in `half` where it is f32: rounds to nearest, ties to even; too large becomes
/// infinite, a NaN stays one. REQUIRES: `half` is bf16 or f16, else Error{invalid_argument}; no overlap.
void narrow(Dtype half, std::size_t elements, const std::byte* f32, std::byte* halves);
/// The other way, which is exact.
void widen(Dtype half, std::size_t elements, const std::byte* halves, std::byte* f32);

}  // namespace lockstep::kernel
