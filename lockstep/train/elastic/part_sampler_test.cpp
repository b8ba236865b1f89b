#include "lockstep/train/elastic/part_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::vector<std::size_t> batch(PartSampler& sampler, std::uint64_t step, int parts) {
  std::vector<std::size_t> all;
  for (int part = 0; part < parts; ++part) {
    const auto some = sampler.indices({.step = step, .number = part, .parts = parts});
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

TEST(PartSampler, ABatchDoesNotDependOnItsParts) {
  PartSampler sampler(100, 24);
  for (const std::uint64_t step : {0, 3, 4, 11}) {
    const auto whole = batch(sampler, step, 1);
    EXPECT_EQ(whole.size(), 24U);
    for (const int parts : {2, 6, 24}) EXPECT_EQ(batch(sampler, step, parts), whole);
  }
}

TEST(PartSampler, AnEpochHasNoSampleTwice) {
  PartSampler sampler(100, 24);
  EXPECT_EQ(sampler.steps_per_epoch(), 4U);
  for (const std::uint64_t epoch : {0, 1, 5}) {
    std::vector<std::size_t> seen;
    for (std::uint64_t step = 4 * epoch; step < 4 * epoch + 4; ++step) {
      EXPECT_EQ(sampler.epoch_of(step), epoch);
      const auto some = batch(sampler, step, 3);
      seen.insert(seen.end(), some.begin(), some.end());
    }
    std::ranges::sort(seen);
    EXPECT_TRUE(std::ranges::adjacent_find(seen) == seen.end());
    EXPECT_LT(seen.back(), 100U);
  }
}

TEST(PartSampler, EpochsHaveOrdersOfTheirOwnUnlessTheyAreTheSets) {
  PartSampler shuffled(96, 96), other(96, 96, {.seed = 1}), plain(96, 96, {.shuffle = false});
  EXPECT_NE(batch(shuffled, 0, 1), batch(shuffled, 1, 1));
  EXPECT_NE(batch(shuffled, 0, 1), batch(other, 0, 1));
  std::vector<std::size_t> order(96);
  std::iota(order.begin(), order.end(), 0);
  EXPECT_EQ(batch(plain, 0, 4), order);
  EXPECT_EQ(batch(plain, 7, 1), order);
}

TEST(PartSampler, SaysWhatCannotBe) {
  const auto failure = [](const auto& act) -> std::string {
    try {
      act();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_THAT(failure([] { PartSampler(10, 0); }), HasSubstr("batches of 0 of 10 samples"));
  EXPECT_THAT(failure([] { PartSampler(10, 11); }), HasSubstr("batches of 11 of 10 samples"));
  PartSampler sampler(10, 10);
  EXPECT_THAT(failure([&] { sampler.indices({.parts = 3}); }), HasSubstr("10 does not divide into 3 parts"));
}

}  // namespace
}  // namespace lockstep
