#include "lockstep/train/data_parallel/bucket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/group/in_process.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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

std::vector<BucketPlan> plan_backward(const std::vector<GradientSize>& sizes, const BucketLimits& limits) {
  return plan_buckets(sizes, backward_order(sizes.size()), limits);
}

TEST(PlanBuckets, GoesFromTheLastParameterToTheFirst) {
  const auto plans = plan_backward(floats({16, 16, 16}), {.first_bytes = 1 << 20, .cap_bytes = 1 << 20});
  EXPECT_THAT(parameters_of(plans), ElementsAre(ElementsAre(2, 1, 0)));
}

TEST(PlanBuckets, FillsTheFirstToItsOwnLimit) {
  const auto plans = plan_backward(floats({16, 16, 16, 16}), {.first_bytes = 64, .cap_bytes = 128});
  EXPECT_THAT(parameters_of(plans), ElementsAre(ElementsAre(3), ElementsAre(2, 1), ElementsAre(0)));
}

TEST(PlanBuckets, NeverMixesTypes) {
  const std::vector<GradientSize> sizes = {
      {16, Dtype::f32}, {16, Dtype::f64}, {16, Dtype::f32}, {16, Dtype::f64}};
  const auto plans = plan_backward(sizes, {});
  EXPECT_THAT(parameters_of(plans), ElementsAre(ElementsAre(3, 1), ElementsAre(2, 0)));
  EXPECT_EQ(plans[0].dtype, Dtype::f64);
  EXPECT_EQ(plans[1].dtype, Dtype::f32);
}

TEST(PlanBuckets, SendsABucketNoLaterThanOneWhoseGradientsComeLater) {
  // The f64 bucket is complete with parameter 1, the f32 bucket only with parameter 0.
  const std::vector<GradientSize> sizes = {{16, Dtype::f32}, {16, Dtype::f64}, {16, Dtype::f32}};
  EXPECT_THAT(parameters_of(plan_backward(sizes, {})), ElementsAre(ElementsAre(1), ElementsAre(2, 0)));
}

TEST(PlanBuckets, AlignsEverySlot) {
  const auto plans = plan_backward(floats({3, 17, 1}), {});
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans[0].slots[0].begin, 0U);
  EXPECT_EQ(plans[0].slots[1].begin, 16U);
  EXPECT_EQ(plans[0].slots[2].begin, 48U);
  EXPECT_EQ(plans[0].elements, 51U);
}

TEST(PlanBuckets, HasNoBucketsWithoutParameters) { EXPECT_TRUE(plan_backward({}, {}).empty()); }

TEST(PlanBuckets, FollowsTheOrderInWhichGradientsBecomeReady) {
  const std::vector<std::size_t> order = {0, 2, 1};
  const auto plans = plan_buckets(floats({16, 16, 16}), order, {.first_bytes = 128, .cap_bytes = 128});
  EXPECT_THAT(parameters_of(plans), ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
}

TEST(PlanBuckets, LeavesOutWhatIsNotInTheOrder) {
  const std::vector<std::size_t> order = {2, 0};
  EXPECT_THAT(parameters_of(plan_buckets(floats({16, 16, 16}), order, {})), ElementsAre(ElementsAre(2, 0)));
}

TEST(Bucket, HasItsPagesForItselfWhereItIsAskedTo) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const Group group;
  for (const std::size_t elements : {std::size_t{1}, page / 4, 3 * page}) {
    const BucketPlan plan{.dtype = Dtype::f32, .slots = {}, .elements = elements};
    const Bucket bucket(group, plan, /*in_own_pages=*/true);
    EXPECT_EQ(bucket.bytes().size(), 4 * elements);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bucket.bytes().data()) % page, 0U);
    const auto& block = *static_cast<const ArenaBlock*>(bucket.keep_alive().get());
    const auto in_last_page = bucket.bytes().size() % page;
    const auto* const end = bucket.bytes().data() + bucket.bytes().size() + (page - in_last_page) % page;
    EXPECT_LE(end, block.bytes().data() + block.bytes().size());
  }
}

TEST(Bucket, SaysWhatItIsWhereTheArenaIsFull) {
  const auto world = in_process_world(2, {}, std::size_t{1} << 20);
  const BucketPlan plan{.dtype = Dtype::f32, .slots = {}, .elements = 1'000'000};
  try {
    const Bucket bucket(world[0], plan);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(),
                HasSubstr("the gradients' bucket of 4000000 bytes: the arena of 1048576 bytes"));
    EXPECT_THAT(error.what(), HasSubstr("set LOCKSTEP_ARENA_BYTES"));
  }
}

}  // namespace
}  // namespace lockstep
