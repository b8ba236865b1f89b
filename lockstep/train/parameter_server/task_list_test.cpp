#include "lockstep/train/parameter_server/task_list.h"

#include <gtest/gtest.h>

namespace lockstep::ps {
namespace {

TEST(TaskList, GivesTasksInTheirOrderAndTakesResults) {
  TaskList tasks(3);
  EXPECT_TRUE(tasks.is_over());
  EXPECT_EQ(tasks.add("a", "x"), 1U);
  EXPECT_EQ(tasks.add("b", ""), 2U);
  const auto first = tasks.take(), second = tasks.take();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->name + first->argument, "ax");
  EXPECT_EQ(second->task, 2U);
  EXPECT_FALSE(tasks.take().has_value());
  tasks.note_done(2, "r");
  EXPECT_FALSE(tasks.is_over());
  tasks.note_done(1, "");
  EXPECT_TRUE(tasks.is_over());
  const auto outcomes = tasks.take_outcomes();
  ASSERT_EQ(outcomes.size(), 2U);
  EXPECT_EQ(outcomes[1].result, "r");
  EXPECT_EQ(outcomes[1].attempts, 1);
  EXPECT_TRUE(tasks.take_outcomes().empty());
}

TEST(TaskList, GivesUpWhatFailsTooOften) {
  TaskList tasks(2);
  tasks.add("a", "");
  (void)tasks.take();
  tasks.note_failure(1, "once");
  EXPECT_TRUE(tasks.has_waiting());
  (void)tasks.take();
  tasks.note_failure(1, "twice");
  EXPECT_TRUE(tasks.is_over());
  const auto outcome = tasks.take_outcomes().at(0);
  EXPECT_EQ(outcome.error, "twice");
  EXPECT_EQ(outcome.attempts, 2);
}

TEST(TaskList, SaysBelowWhichAllTasksAreSettled) {
  TaskList tasks(2);
  for (int i = 0; i < 3; ++i) tasks.add("a", "");
  (void)tasks.take();
  (void)tasks.take();
  tasks.note_done(2, "");
  EXPECT_EQ(tasks.take()->settled_below, 1U) << "the first is still under way";
  tasks.note_done(1, "");
  tasks.add("a", "");
  EXPECT_EQ(tasks.take()->settled_below, 3U);
}

TEST(TaskList, AResultThatComesTwiceCountsOnce) {
  TaskList tasks(5);
  tasks.add("a", "");
  (void)tasks.take();
  tasks.note_failure(1, "its worker was lost");
  tasks.note_done(1, "it had done it before");  // a report that was on its way
  EXPECT_FALSE(tasks.has_waiting());
  tasks.note_done(1, "again");
  tasks.note_failure(1, "again");
  EXPECT_EQ(tasks.take_outcomes().at(0).result, "it had done it before");
}

}  // namespace
}  // namespace lockstep::ps
