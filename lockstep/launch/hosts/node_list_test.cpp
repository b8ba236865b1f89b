#include "lockstep/launch/hosts/node_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/failure_test.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> nodes(const std::string& text) { return parse_node_list(text, "LIST"); }

TEST(NodeList, IsHostsPatternsAndRanges) {
  EXPECT_THAT(nodes("login"), ElementsAre("login"));
  EXPECT_THAT(nodes("n[1-3,07],login,gpu[2]b"), ElementsAre("n1", "n2", "n3", "n07", "login", "gpu2b"));
}

TEST(NodeList, KeepsLeadingZeros) { EXPECT_THAT(nodes("n[08-10]"), ElementsAre("n08", "n09", "n10")); }

TEST(NodeList, CountsTheLastOfSeveralBracketsFastest) {
  EXPECT_THAT(nodes("r[0-1]n[1-2]"), ElementsAre("r0n1", "r0n2", "r1n1", "r1n2"));
}

TEST(NodeList, RefusesWithThePlace) {
  const auto why = [](const std::string& text) {
    return test::failure_of([&] { nodes(text); }, ErrorCode::invalid_argument);
  };
  EXPECT_EQ(why(""), "LIST=\"\": expected a host at character 1");
  EXPECT_EQ(why("a,"), "LIST=\"a,\": expected a host at character 3");
  EXPECT_EQ(why("n[1-"), "LIST=\"n[1-\": expected a number at character 5");
  EXPECT_EQ(why("n[1"), "LIST=\"n[1\": expected ']' at character 4");
  EXPECT_EQ(why("n[3-1]"), "LIST=\"n[3-1]\": a range ends before it begins at character 6");
  EXPECT_EQ(why("n]"), "LIST=\"n]\": expected ',' at character 2");
  EXPECT_EQ(why("n[1234567890]"), "LIST=\"n[1234567890]\": expected a number at character 13");
  EXPECT_EQ(why("n[0-16384]"), "LIST=\"n[0-16384]\": more than 16384 hosts at character 10");
  EXPECT_EQ(why("n[0-999]m[0-999]"), "LIST=\"n[0-999]m[0-999]\": more than 16384 hosts at character 17");
  EXPECT_EQ(why("n[0-9999],m[0-9999]"),
            "LIST=\"n[0-9999],m[0-9999]\": more than 16384 hosts at character 20");
}

TEST(Counts, RepeatANumber) {
  EXPECT_THAT(parse_counts("4", "COUNTS"), ElementsAre(4));
  EXPECT_THAT(parse_counts("2(x3),1", "COUNTS"), ElementsAre(2, 2, 2, 1));
}

TEST(Counts, RefuseWithThePlace) {
  const auto why = [](const std::string& text) {
    return test::failure_of([&] { parse_counts(text, "COUNTS"); }, ErrorCode::invalid_argument);
  };
  EXPECT_EQ(why("2(3)"), "COUNTS=\"2(3)\": expected 'x' at character 3");
  EXPECT_EQ(why("2(x3"), "COUNTS=\"2(x3\": expected ')' at character 5");
  EXPECT_EQ(why("2;1"), "COUNTS=\"2;1\": expected ',' at character 2");
  EXPECT_EQ(why("1(x16385)"), "COUNTS=\"1(x16385)\": more than 16384 hosts at character 10");
}

}  // namespace
}  // namespace lockstep::launch
