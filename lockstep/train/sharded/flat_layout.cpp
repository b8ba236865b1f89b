#include "lockstep/train/sharded/flat_layout.h"

#include <algorithm>
#include <map>

namespace lockstep {
namespace {

constexpr std::size_t border_elements = 64;  // 64 bytes at least, of any type

std::size_t up_to_border(std::size_t elements, std::size_t border = border_elements) {
  return (elements + border - 1) / border * border;
}

}  // namespace

std::vector<FlatLayout> plan_flat(std::span<const GradientSize> parameters, int slices) {
  std::map<Dtype, FlatLayout> by_type;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    FlatLayout& layout = by_type[parameters[i].dtype];
    layout.dtype = parameters[i].dtype;
    layout.entries.push_back({i, {layout.elements, parameters[i].elements}});
    layout.elements = up_to_border(layout.elements + parameters[i].elements);
  }
  std::vector<FlatLayout> layouts;
  for (auto& [dtype, layout] : by_type) {
    layout.elements = up_to_border(layout.elements, border_elements * static_cast<std::size_t>(slices));
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

Range slice_of(const FlatLayout& layout, int rank, int ranks) {
  const Range units = schedule::chunk_of(layout.elements / border_elements, rank, ranks);
  return {units.begin * border_elements, units.count * border_elements};
}

std::vector<Segment> segments_in(const FlatLayout& layout, const Range& slice) {
  std::vector<Segment> segments;
  for (const auto& [parameter, place] : layout.entries) {
    const std::size_t begin = std::max(place.begin, slice.begin);
    const std::size_t end = std::min(place.begin + place.count, slice.begin + slice.count);
    if (begin < end) segments.push_back({parameter, begin - place.begin, begin, end - begin});
  }
  return segments;
}

}  // namespace lockstep
