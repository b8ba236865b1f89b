// Times are made up: nothing here waits.
#include "lockstep/train/trainer/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

TrainingProgress::Time at(int ms) {
  return TrainingProgress::Time() + std::chrono::hours(5) + milliseconds(ms);
}

/// Into `out`, as into a terminal or a file.
ProgressOptions into(std::ostringstream& out, bool is_terminal) {
  return {.out = &out, .is_terminal = is_terminal};
}

std::string take(std::ostringstream& out) {
  std::string text = out.str();
  out.str("");
  return text;
}

TEST(TrainingProgress, RewritesOneLineOfATerminal) {
  std::ostringstream out;
  TrainingProgress progress(Group(), into(out, true));
  progress.begin(2, 20, 8, at(0));
  EXPECT_EQ(take(out), "");
  progress.step(100, 2.5, at(1000));
  EXPECT_EQ(take(out), "\repoch 3/20 [==>                 ]  12 %  100 images/s  loss 2.5  0:07 left\x1b[K");
  progress.step(300, 0.125, at(2000));
  EXPECT_EQ(take(out),
            "\repoch 3/20 [=====>              ]  25 %  200 images/s  loss 0.125  0:06 left\x1b[K");
  progress.end({.epoch = 2, .train_loss = 0.5, .images_per_second = 150}, at(65'000));
  EXPECT_EQ(take(out), "\r\x1b[Kepoch 3/20  loss 0.5  150 images/s  1:05\n");
}

TEST(TrainingProgress, RewritesNotMoreOftenThanItIsRead) {
  std::ostringstream out;
  TrainingProgress progress(Group(), into(out, true));
  progress.begin(0, 1, 100, at(0));
  int written = 0;
  for (int ms = 1; ms <= 100; ++ms) {
    progress.step(1, 1, at(ms * 10));
    written += take(out).empty() ? 0 : 1;
  }
  EXPECT_EQ(written, 10);
}

TEST(TrainingProgress, IsNoLongerThanTheTerminalIsWide) {
  std::ostringstream out;
  ProgressOptions options = into(out, true);
  options.columns = 20;
  TrainingProgress progress(Group(), options);
  progress.begin(0, 1, 100, at(0));
  progress.step(1, 1, at(500));
  EXPECT_EQ(take(out), "\repoch 1/1 [>       \x1b[K");
}

TEST(TrainingProgress, IsALineNowAndThenInAFile) {
  std::ostringstream out;
  TrainingProgress progress(Group(), into(out, false));
  progress.begin(0, 3, 1000, at(0));
  for (int second = 1; second <= 60; ++second) progress.step(10, 0.5, at(1000 * second));
  EXPECT_EQ(take(out),
            "epoch 1/3 [>                   ]   3 %  10 images/s  loss 0.5  16:10 left\n"
            "epoch 1/3 [=>                  ]   6 %  10 images/s  loss 0.5  15:40 left\n");
  progress.end({.epoch = 0,
                .train_loss = 0.75,
                .eval_loss = 0.7,
                .eval_accuracy = 0.5,
                .images_per_second = 10,
                .learning_rate = 0.01},
               at(3'661'000));
  EXPECT_EQ(take(out),
            "epoch 1/3  loss 0.75  eval loss 0.7  accuracy 0.5000  10 images/s  rate 0.01  1:01:01\n");
  progress.say("stopped");
  EXPECT_EQ(take(out), "stopped\n");
}

TEST(TrainingProgress, CountsStepsWhereNobodyKnowsHowManyThereAre) {
  std::ostringstream out;
  TrainingProgress progress(Group(), into(out, true));
  progress.begin(0, 1, 0, at(0));
  for (int step = 1; step <= 3; ++step) progress.step(1, 1, at(100 * step));
  EXPECT_EQ(take(out).substr(0, 17), "\repoch 1/1  step ");
  progress.step(1, 1, at(400));
  EXPECT_EQ(take(out), "\repoch 1/1  step 4  10 images/s  loss 1\x1b[K");
}

TEST(TrainingProgress, BearsMoreStepsThanWereAnnounced) {
  std::ostringstream out;
  TrainingProgress progress(Group(), into(out, true));
  progress.begin(0, 1, 1, at(0));
  progress.step(1, 1, at(1000));
  EXPECT_EQ(take(out), "\repoch 1/1 [====================] 100 %  1 images/s  loss 1  0:00 left\x1b[K");
  progress.step(1, 1, at(2000));
  EXPECT_EQ(take(out), "\repoch 1/1 [====================] 100 %  1 images/s  loss 1\x1b[K");
}

TEST(TrainingProgress, IsOfRank0ForAllRanks) {
  std::ostringstream out;
  test::on_ranks(3, [&](const Group& group) {
    std::ostringstream nobody;
    TrainingProgress progress(group, into(group.rank() == 0 ? out : nobody, false));
    progress.begin(0, 1, 10, at(0));
    progress.step(10, 1, at(30'000));
    progress.end({.train_loss = 1}, at(31'000));
    progress.say("done");
    EXPECT_EQ(nobody.str(), "");
  });
  EXPECT_EQ(out.str(),
            "epoch 1/1 [==>                 ]  10 %  1 images/s  loss 1  4:30 left\n"
            "epoch 1/1  loss 1  31.0 s\ndone\n");
}

}  // namespace
}  // namespace lockstep
