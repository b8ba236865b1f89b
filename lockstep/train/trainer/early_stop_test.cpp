#include "lockstep/train/trainer/early_stop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

/// How many values are taken until it says stop; one more than there are if it never does.
std::size_t stops_after(EarlyStop stop, const std::vector<double>& values, const Group& group = Group()) {
  std::size_t taken = 0;
  for (const double value : values) {
    ++taken;
    if (stop.should_stop(group, value)) return taken;
  }
  return taken + 1;
}

TEST(EarlyStop, WaitsAsManyValuesAsItHasPatience) {
  EXPECT_EQ(stops_after(EarlyStop({.patience = 2}), {3, 2, 2.5, 2.1, 1}), 4U);
  EXPECT_EQ(stops_after(EarlyStop({.patience = 2}), {3, 2, 2.5, 1.9, 2.5, 1.9}), 6U) << "a tie is not better";
  EXPECT_EQ(stops_after(EarlyStop({.patience = 2}), {5, 4, 3, 2, 1}), 6U);
  EXPECT_EQ(stops_after(EarlyStop({.patience = 1}), {1, 1}), 2U);
}

TEST(EarlyStop, TakesSmallGainsForNone) {
  const EarlyStopOptions options{.patience = 2, .min_delta = 0.5};
  EXPECT_EQ(stops_after(EarlyStop(options), {4, 3.75, 3.5}), 3U);
  EXPECT_EQ(stops_after(EarlyStop(options), {4, 3.75, 3.25, 2, 2}), 6U) << "gains add up";
}

TEST(EarlyStop, TakesNoNumberForABetterOne) {
  EXPECT_EQ(
      stops_after(EarlyStop({.patience = 3}), {std::nan(""), 1, std::nan(""), std::nan(""), std::nan("")}),
      5U);
}

TEST(EarlyStop, IsDecidedByRank0ForAll) {
  test::on_ranks(3, [](const Group& group) {
    const std::vector<double> mine =
        group.rank() == 0 ? std::vector<double>{3, 3, 3} : std::vector<double>{3, 2, 1};
    EXPECT_EQ(stops_after(EarlyStop({.patience = 2}), mine, group), 3U);
  });
}

TEST(EarlyStop, GoesOnFromWhatItWas) {
  EarlyStop first({.patience = 3});
  EXPECT_FALSE(first.should_stop(Group(), 1));
  EXPECT_FALSE(first.should_stop(Group(), 2));
  EarlyStop second({.patience = 3});
  second.restore(first.best(), first.waited());
  EXPECT_EQ(second.best(), 1);
  EXPECT_FALSE(second.is_over());
  EXPECT_EQ(stops_after(second, {1.5, 1.5}), 2U);
  second.restore(1, 3);
  EXPECT_TRUE(second.is_over());
}

TEST(EarlyStop, RefusesOptionsThatMakeNoSense) {
  const auto refusal = [](const EarlyStopOptions& options) -> std::string {
    try {
      (void)EarlyStop(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal({.patience = 0}), "an early stop's patience is at least 1, found 0");
  EXPECT_EQ(refusal({.min_delta = -0.5}), "an early stop's min_delta is not negative, found -0.5");
  EXPECT_EQ(refusal({.min_delta = std::nan("")}), "an early stop's min_delta is not negative, found nan");
}

}  // namespace
}  // namespace lockstep
