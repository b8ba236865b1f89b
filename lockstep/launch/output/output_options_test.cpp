#include "lockstep/launch/output/output_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/folder_test.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// By local rank 0 and 1: "oe" both streams, "o-", "-e", "--".
std::string shown(const StreamChoice& choice) {
  std::string text;
  for (const int rank : {0, 1}) {
    text += choice.has(rank, PrintStream::out) ? "o" : "-";
    text += choice.has(rank, PrintStream::err) ? "e" : "-";
  }
  return text;
}

TEST(StreamChoiceOf, OneNumberIsForAllRanks) {
  EXPECT_EQ(shown(StreamChoice()), "----");
  EXPECT_EQ(shown(StreamChoice::parse("-r", "0")), "----");
  EXPECT_EQ(shown(StreamChoice::parse("-r", "1")), "o-o-");
  EXPECT_EQ(shown(StreamChoice::parse("-r", "2")), "-e-e");
  EXPECT_EQ(shown(StreamChoice::parse("-r", "3")), "oeoe");
  EXPECT_EQ(shown(StreamChoice::all()), "oeoe");
  EXPECT_TRUE(StreamChoice::parse("-r", "0").empty());
  EXPECT_FALSE(StreamChoice::all().empty());
}

TEST(StreamChoiceOf, SingleRanksLeavesTheOthersOut) {
  EXPECT_EQ(shown(StreamChoice::parse("-r", "1:3")), "--oe");
  EXPECT_EQ(shown(StreamChoice::parse("-r", "0:2,1:1")), "-eo-");
  EXPECT_TRUE(StreamChoice::parse("-r", "0:0").empty());
}

TEST(StreamChoiceOf, NonsenseIsRefused) {
  for (const char* text : {"", "4", "-1", "11", "0:", ":1", "0:1,", "0:1,0:2", "a:1", "0:1:1", "70000:1"})
    EXPECT_THAT(test::refusal([&] { (void)StreamChoice::parse("--tee", text); }),
                HasSubstr("invalid_argument: --tee"))
        << text;
}

TEST(LocalRanks, AreAList) {
  EXPECT_THAT(parse_local_ranks("--local-ranks-filter", "0,2"), ElementsAre(0, 2));
  for (const char* text : {"", "0,", "x", "-1"})
    EXPECT_THAT(test::refusal([&] { (void)parse_local_ranks("--filter", text); }), HasSubstr("--filter"))
        << text;
}

}  // namespace
}  // namespace lockstep::launch
