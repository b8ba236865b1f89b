#include "c/adasum.h"

#include <gmock/gmock.h>

#include <vector>

#include "lockstep/base/half.h"

namespace lockstep::c {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;

std::vector<float> adasum_of(std::vector<float> vectors, std::size_t ranks, std::vector<std::size_t> parts) {
  for (std::size_t& part : parts) part *= sizeof(float);
  adasum(Dtype::f32, std::as_writable_bytes(std::span(vectors)), ranks, parts);
  vectors.resize(vectors.size() / ranks);
  return vectors;
}

TEST(AdasumOfBytes, IsTheSumOfWhatIsOrthogonalAndTheMeanOfWhatIsParallel) {
  EXPECT_THAT(adasum_of({1, 0, 0, 2}, 2, {2}), ElementsAre(1, 2));
  EXPECT_THAT(adasum_of({2, 4, 2, 4}, 2, {2}), ElementsAre(2, 4));
  EXPECT_THAT(adasum_of({1, 1, 3, 3}, 2, {2}), ElementsAre(2, 2));  // whose lengths differ, too
}

TEST(AdasumOfBytes, WeighsEachPartByItself) {
  EXPECT_THAT(adasum_of({1, 0, 5, 0, 2, 5}, 2, {2, 1}), ElementsAre(1, 2, 5));
}

TEST(AdasumOfBytes, OfSeveralVectorsIsThatOfPairs) {
  EXPECT_THAT(adasum_of({1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, 4, {4}), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(adasum_of({4, 4, 4, 4}, 4, {1}), ElementsAre(4));
  EXPECT_THAT(adasum_of({4, 4, 4}, 3, {1}), ElementsAre(4));  // the third one belongs to the first
  EXPECT_THAT(adasum_of({7, 7}, 1, {2}), ElementsAre(7, 7));
}

TEST(AdasumOfBytes, NothingAddsNothing) {
  EXPECT_THAT(adasum_of({0, 0, 3, 1}, 2, {2}), ElementsAre(3, 1));
  EXPECT_THAT(adasum_of({0, 0, 0, 0}, 2, {2}), ElementsAre(0, 0));
}

TEST(AdasumOfBytes, OfHalvesAndDoubles) {
  std::vector<float16> halves = {to_float16(1), to_float16(0), to_float16(0), to_float16(2)};
  const std::vector<std::size_t> parts = {2 * sizeof(float16)};
  adasum(Dtype::f16, std::as_writable_bytes(std::span(halves)), 2, parts);
  EXPECT_EQ(to_float(halves[0]), 1);
  EXPECT_EQ(to_float(halves[1]), 2);
  std::vector<bfloat16> others = {to_bfloat16(3), to_bfloat16(3)};
  adasum(Dtype::bf16, std::as_writable_bytes(std::span(others)), 2,
         std::vector<std::size_t>{sizeof(bfloat16)});
  EXPECT_EQ(to_float(others[0]), 3);
  std::vector<double> doubles = {1, 2, 2, 1};  // (1 - 4/10) of both
  adasum(Dtype::f64, std::as_writable_bytes(std::span(doubles)), 2,
         std::vector<std::size_t>{2 * sizeof(double)});
  EXPECT_NEAR(doubles[0], 1.8, 1e-12);
  EXPECT_NEAR(doubles[1], 1.8, 1e-12);
}

}  // namespace
}  // namespace lockstep::c
