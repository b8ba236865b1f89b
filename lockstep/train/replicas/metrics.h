// A loss or an accuracy that one rank has measured is about its own samples. The figure for all of them is
// the mean weighted by samples: the mean of the ranks' means is wrong as soon as a last batch is shorter on
// one of them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/group/group.h"

namespace lockstep {

/// Collective. The mean of `value` over all samples of all ranks, of which this rank has `samples`; the same
/// bits on every rank. A rank without samples does not count, whatever its value. NaN if no rank has any.
/// Cost: one all_reduce of 16 bytes.
double metric_average(const Group& group, double value, std::size_t samples);

/// The same for several figures at once, as many on every rank; one all_reduce of 8 bytes for each and 8
/// more.
std::vector<double> metric_average(const Group& group, std::span<const double> values, std::size_t samples);

}  // namespace lockstep
