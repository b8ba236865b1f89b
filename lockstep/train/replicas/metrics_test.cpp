#include "lockstep/train/replicas/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

TEST(MetricAverage, WeighsBySamples) {
  test::on_ranks(2, [](const Group& group) {
    // 4 samples with mean 1, 2 with mean 4: the mean of six is 2, the mean of the
    // means 2.5.
    const bool first = group.rank() == 0;
    EXPECT_DOUBLE_EQ(metric_average(group, first ? 1 : 4, first ? 4 : 2), 2);
  });
}

TEST(MetricAverage, LeavesOutRanksWithoutSamplesWhateverTheyMeasured) {
  test::on_ranks(2, [](const Group& group) {
    EXPECT_DOUBLE_EQ(metric_average(group, group.rank() == 0 ? 3 : std::nan(""), group.rank() == 0 ? 5 : 0),
                     3);
  });
}

TEST(MetricAverage, IsNotANumberWhereNobodyHasSamples) {
  EXPECT_TRUE(std::isnan(metric_average(Group(), 1, 0)));
}

TEST(MetricAverage, TakesSeveralFiguresAtOnce) {
  test::on_ranks(3, [](const Group& group) {
    const std::vector<double> mine = {static_cast<double>(group.rank()), 1};
    EXPECT_EQ(metric_average(group, mine, 1), (std::vector<double>{1, 1}));
  });
}

TEST(MetricAverage, IsTheValueItselfAlone) { EXPECT_DOUBLE_EQ(metric_average(Group(), 0.125, 7), 0.125); }

}  // namespace
}  // namespace lockstep
