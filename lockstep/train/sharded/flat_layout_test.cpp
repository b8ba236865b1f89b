#include "lockstep/train/sharded/flat_layout.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

const std::vector<GradientSize> model = {{1000, Dtype::f32}, {3, Dtype::f32}, {500, Dtype::bf16},
                                         {0, Dtype::f32},    {1, Dtype::f64}, {777, Dtype::f32},
                                         {65, Dtype::bf16}};

TEST(FlatLayout, HasAnArrayForEachTypeWithEachParameterOnABorder) {
  const auto layouts = plan_flat(model);
  ASSERT_EQ(layouts.size(), 3U);
  std::size_t parameters = 0;
  for (const auto& layout : layouts) {
    std::size_t free = 0;
    for (const auto& [parameter, place] : layout.entries) {
      ++parameters;
      EXPECT_EQ(model[parameter].dtype, layout.dtype);
      EXPECT_EQ(model[parameter].elements, place.count);
      EXPECT_EQ(place.begin * size_of(layout.dtype) % 64, 0U);
      EXPECT_GE(place.begin, free);
      free = place.begin + place.count;
    }
    EXPECT_GE(layout.elements, free);
  }
  EXPECT_EQ(parameters, model.size());
}

TEST(FlatLayout, HasSlicesThatAreAlikeWhereItIsToldTo) {
  for (int ranks = 1; ranks <= 33; ++ranks) {
    for (const auto& layout : plan_flat(model, ranks)) {
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_EQ(slice_of(layout, rank, ranks).count, layout.elements / static_cast<std::size_t>(ranks));
    }
  }
}

TEST(FlatLayout, SlicesOfAllRanksTogetherAreEachElementOnce) {
  for (const auto& layout : plan_flat(model)) {
    for (int ranks = 1; ranks <= 33; ++ranks) {
      std::vector<std::vector<int>> seen(model.size());
      for (std::size_t i = 0; i < model.size(); ++i) seen[i].assign(model[i].elements, 0);
      std::size_t end = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Range slice = slice_of(layout, rank, ranks);
        EXPECT_EQ(slice.begin, end);
        EXPECT_EQ(slice.begin * size_of(layout.dtype) % 64, 0U);
        end = slice.begin + slice.count;
        for (const Segment& segment : segments_in(layout, slice)) {
          EXPECT_GE(segment.position, slice.begin);
          EXPECT_LE(segment.position + segment.elements, end);
          for (std::size_t i = 0; i < segment.elements; ++i) ++seen[segment.parameter].at(segment.begin + i);
        }
      }
      EXPECT_EQ(end, layout.elements);
      for (const auto& [parameter, place] : layout.entries) {
        EXPECT_EQ(seen[parameter], std::vector<int>(place.count, 1)) << ranks << " ranks";
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
