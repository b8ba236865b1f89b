// The parameters of a model as few long arrays, one for each element type, of which each rank has a slice: so
// that work and memory are shared evenly, whatever the sizes of the parameters.
//
//   parameters   [ 0       ][ 1 ][ 2                 ]
//   slices       [ rank 0        | rank 1            ]      rank 0's segments: all of 0 and 1, some of 2
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/schedule/call.h"
#include "lockstep/train/tensor/gradient_size.h"

namespace lockstep {

/// Counted in elements. Every parameter and every slice begins on a border of 64 bytes or more.
struct FlatLayout {
  struct Entry {
    std::size_t parameter = 0;
    Range place;
  };
  Dtype dtype = Dtype::f32;
  std::vector<Entry> entries;  ///< in the order of parameters
  std::size_t elements = 0;    ///< with the gaps between parameters
};

/// One for each type that occurs, of which so many `slices` are alike. Pure: the same on all ranks that pass the same.
std::vector<FlatLayout> plan_flat(std::span<const GradientSize> parameters, int slices = 1);

/// What `rank` of `ranks` is to work on.
Range slice_of(const FlatLayout& layout, int rank, int ranks);

/// The part of one parameter that lies in a slice.
struct Segment {
  std::size_t parameter = 0;
  std::size_t begin = 0;     ///< in the parameter
  std::size_t position = 0;  ///< in the flat array
  std::size_t elements = 0;
};
std::vector<Segment> segments_in(const FlatLayout& layout, const Range& slice);

}  // namespace lockstep
