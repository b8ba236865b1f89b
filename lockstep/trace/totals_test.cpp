#include "lockstep/trace/totals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "lockstep/base/size_bin.h"

namespace lockstep::trace {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

CompletedCollective call(std::uint64_t ns) {
  CompletedCollective made{};
  made.begin_ns = 1000;
  made.arrived_ns = 1000 + ns / 2;
  made.end_ns = 1000 + ns;
  return made;
}

TEST(Totals, EachClassHasARowOfItsOwn) {
  const auto table = std::make_unique<TotalsTable>();
  Totals totals(table.get());
  for (const std::uint32_t group : {1U, 2U}) {
    for (const Operation operation : {Operation::all_reduce, Operation::all_gather}) {
      for (const bool has_counts : {false, true}) {
        for (const int bin : {0, 1, 40}) totals.add({group, operation, has_counts, bin}, call(10), 3, 10);
      }
    }
  }
  const auto rows = read_totals(*table);
  EXPECT_THAT(rows, SizeIs(24));
  for (const TotalsRow& row : rows) EXPECT_EQ(row.totals.calls, 1U);
  EXPECT_EQ(read_rest(*table).calls, 0U);
}

TEST(Totals, NothingIsLostWhereThereAreMoreClassesThanRows) {
  const auto table = std::make_unique<TotalsTable>();
  Totals totals(table.get());
  constexpr std::uint32_t classes = TotalsTable::capacity * 2;
  for (std::uint32_t group = 0; group < classes; ++group) totals.add({.group = group}, call(10), 8, 10);
  std::uint64_t calls = read_rest(*table).calls;
  EXPECT_GT(calls, 0U);
  for (const TotalsRow& row : read_totals(*table)) calls += row.totals.calls;
  EXPECT_EQ(calls, classes);
}

TEST(Totals, WhatAProgramHasWrittenThereByMistakeIsLeftOut) {
  const auto table = std::make_unique<TotalsTable>();
  table->rows[3].key.store(~std::uint64_t{0});
  table->rows[3].calls.store(1);
  EXPECT_THAT(read_totals(*table), IsEmpty());
}

TEST(Totals, WithoutATableNothingIsAddedUp) {
  Totals totals;
  totals.add({}, call(10), 8, 10);
  totals.add_blocked({}, 10);
}

TEST(Totals, StepsAreAddedUp) {
  StepSums sums{};
  TrainingStepEvent step{};
  step.begin_ns = 10;
  step.end_ns = 30;
  step.exposed_work_ns = 3;
  step.exposed_wait_ns = 4;
  step.gradient_bytes = 100;
  add_step(sums, step);
  add_step(sums, step);
  const StepTotals steps = read_steps(sums);
  EXPECT_EQ(steps.steps, 2U);
  EXPECT_EQ(steps.ns, 40U);
  EXPECT_EQ(steps.exposed_work_ns, 6U);
  EXPECT_EQ(steps.exposed_wait_ns, 8U);
  EXPECT_EQ(steps.gradient_bytes, 200U);
}

}  // namespace
}  // namespace lockstep::trace
