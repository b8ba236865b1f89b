#include "lockstep/train/bucket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;

std::vector<GradientSize> floats(std::initializer_list<std::size_t> elements) {
  std::vector<GradientSize> sizes;
  for (const auto count : elements) sizes.push_back({count, Dtype::f32});
  return sizes;
}

std::vector<std::vector<std::size_t>> parameters_of(const std::vector<BucketPlan>& plans) {
  std::vector<std::vector<std::size_t>> buckets;
  for (const auto& plan : plans) {
    auto& bucket = buckets.emplace_back();
    for (const auto& slot : plan.slots) bucket.push_back(slot.parameter);
  }
  return buckets;
}

TEST(PlanBuckets, GoesFromTheLastParameterToTheFirst) {
  const auto plans = plan_buckets(floats({16, 16, 16}), {.first_bytes = 1 << 20, .cap_bytes = 1 << 20});
  EXPECT_THAT(parameters_of(plans), ElementsAre(ElementsAre(2, 1, 0)));
}

TEST(PlanBuckets, FillsTheFirstToItsOwnLimit) {
  const auto plans = plan_buckets(floats({16, 16, 16, 16}), {.first_bytes = 64, .cap_bytes = 128});
  EXPECT_THAT(parameters_of(plans), ElementsAre(ElementsAre(3), ElementsAre(2, 1), ElementsAre(0)));
}

TEST(PlanBuckets, NeverMixesTypes) {
  const std::vector<GradientSize> sizes = {
      {16, Dtype::f32}, {16, Dtype::f64}, {16, Dtype::f32}, {16, Dtype::f64}};
  const auto plans = plan_buckets(sizes, {});
  EXPECT_THAT(parameters_of(plans), ElementsAre(ElementsAre(3, 1), ElementsAre(2, 0)));
  EXPECT_EQ(plans[0].dtype, Dtype::f64);
  EXPECT_EQ(plans[1].dtype, Dtype::f32);
}

TEST(PlanBuckets, SendsABucketNoLaterThanOneWhoseGradientsComeLater) {
  // The f64 bucket is complete with parameter 1, the f32 bucket only with parameter 0.
  const std::vector<GradientSize> sizes = {{16, Dtype::f32}, {16, Dtype::f64}, {16, Dtype::f32}};
  EXPECT_THAT(parameters_of(plan_buckets(sizes, {})), ElementsAre(ElementsAre(1), ElementsAre(2, 0)));
}

TEST(PlanBuckets, AlignsEverySlotAndKeepsTheFlagOutOfAllOfThem) {
  const auto plans = plan_buckets(floats({3, 17, 1}), {});
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans[0].slots[0].begin, 0U);
  EXPECT_EQ(plans[0].slots[1].begin, 16U);
  EXPECT_EQ(plans[0].slots[2].begin, 48U);
  EXPECT_EQ(plans[0].flag(), 51U);
}

TEST(PlanBuckets, HasNoBucketsWithoutParameters) { EXPECT_TRUE(plan_buckets({}, {}).empty()); }

TEST(Bucket, CarriesItsFlagInEveryType) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64}) {
    const std::vector<GradientSize> sizes = {{5, dtype}};
    Bucket bucket(Group(), plan_buckets(sizes, {}).front());
    EXPECT_FALSE(bucket.flag_is_set());
    bucket.set_flag(true);
    EXPECT_TRUE(bucket.flag_is_set()) << to_string(dtype);
    bucket.set_flag(false);
    EXPECT_FALSE(bucket.flag_is_set());
  }
}

}  // namespace
}  // namespace lockstep
