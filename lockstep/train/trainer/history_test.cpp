#include "lockstep/train/trainer/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::string refusal_of(const std::string& text) {
  try {
    (void)decode_history(text, "checkpoint a.ckpt");
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "accepted";
}

TEST(History, IsReadAsItWasWritten) {
  EpochResult first;
  first.train_loss = 1.0 / 3;
  first.images_per_second = 1e-300;
  EpochResult second{1, std::numeric_limits<double>::infinity(), -2.5, 0.99, 12345.678, 0.1};
  const auto read = decode_history(encode_history({first, second}), "");
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].epoch, 0U);
  EXPECT_EQ(read[0].train_loss, 1.0 / 3);
  EXPECT_TRUE(std::isnan(read[0].eval_loss));
  EXPECT_EQ(read[0].images_per_second, 1e-300);
  EXPECT_EQ(read[1].epoch, 1U);
  EXPECT_EQ(read[1].train_loss, std::numeric_limits<double>::infinity());
  EXPECT_EQ(read[1].eval_loss, -2.5);
  EXPECT_EQ(read[1].eval_accuracy, 0.99);
  EXPECT_EQ(read[1].learning_rate, 0.1);
  EXPECT_THAT(decode_history("", ""), IsEmpty());
}

TEST(History, KeepsTheLatestOfMoreThanAMebibyte) {
  std::vector<EpochResult> many(60'000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i].epoch = i;
  const std::string text = encode_history(many);
  EXPECT_LE(text.size(), std::size_t{1} << 20);
  EXPECT_GT(text.size(), (std::size_t{1} << 20) - 100);
  const auto read = decode_history(text, "");
  EXPECT_EQ(read.back().epoch, 59'999U);
  EXPECT_EQ(read.front().epoch, 60'000 - read.size());
}

TEST(History, RefusesOtherText) {
  const std::string good = "3 0.5 nan 0.25 100 0.1\n";
  ASSERT_EQ(refusal_of(good), "accepted");
  EXPECT_EQ(refusal_of(good + "x"),
            "corrupt_data: checkpoint a.ckpt: expected a line with an epoch and 5 "
            "figures, found \"x\"; take another checkpoint");
  for (std::size_t length = 1; length < good.size(); ++length)
    EXPECT_THAT(refusal_of(good.substr(0, length)), HasSubstr("corrupt_data")) << length;
  for (const char* bad : {"\n", "3 0.5 nan 0.25 100\n", "3 0.5 nan 0.25 100 0.1 7\n", "-3 0.5 nan 1 1 1\n",
                          "3  0.5 nan 0.25 100 0.1\n", "3 0.5 nan 0.25 100 0.1 \n"})
    EXPECT_THAT(refusal_of(bad), HasSubstr("corrupt_data")) << bad;
}

}  // namespace
}  // namespace lockstep
