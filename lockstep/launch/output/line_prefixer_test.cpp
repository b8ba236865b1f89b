#include "lockstep/launch/output/line_prefixer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;

// What comes out when `text` comes in pieces of `piece` bytes.
std::string prefixed(const std::string& text, std::size_t piece, const std::string& prefix = "[3] ") {
  LinePrefixer lines(prefix);
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += piece)
    lines.add(std::string_view(text).substr(i, piece), out);
  lines.finish(out);
  return out;
}

TEST(LinePrefixer, PutsTheRankBeforeEachLineHoweverItComes) {
  for (std::size_t piece = 1; piece < 20; ++piece) {
    EXPECT_EQ(prefixed("one\n\nthree\r\nfour\n", piece), "[3] one\n[3] \n[3] three\r\n[3] four\n") << piece;
  }
}

TEST(LinePrefixer, HoldsBackAnUnfinishedLine) {
  LinePrefixer lines("[0] ");
  std::string out;
  lines.add("whole\npart", out);
  EXPECT_EQ(out, "[0] whole\n");
  lines.add("ly\n", out);
  EXPECT_EQ(out, "[0] whole\n[0] partly\n");
}

TEST(LinePrefixer, EndsAnUnfinishedLastLine) {
  EXPECT_EQ(prefixed("no end", 4), "[3] no end\n");
  EXPECT_EQ(prefixed("", 4), "");
}

TEST(LinePrefixer, LetsAProgressBarMove) {
  LinePrefixer lines("[0] ");
  std::string out;
  lines.add("\r10 %", out);
  lines.add("\r20 %", out);
  EXPECT_EQ(out, "[0] \r[0] 10 %\r");
}

TEST(LinePrefixer, SplitsAVeryLongLineAndLosesNothing) {
  const std::string text(3 * LinePrefixer::longest_line + 5, 'x');
  for (const std::size_t piece : {std::size_t{1000}, std::size_t{65536}, text.size()}) {
    std::string out = prefixed(text + "\nnext\n", piece);
    EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 5) << piece;
    EXPECT_EQ(std::count(out.begin(), out.end(), 'x') - 1,
              static_cast<std::ptrdiff_t>(text.size()));  // "next"
    EXPECT_TRUE(out.ends_with("\n[3] next\n"));
  }
}

TEST(LinePrefixer, WithoutAPrefixChangesNoByte) {
  std::string binary;
  for (int i = 0; i < 300000; ++i) binary += static_cast<char>(i * 7 % 256);
  binary += std::string(200000, 'x') + "\r\n\r\r\n no end";
  for (const std::size_t piece : {std::size_t{1}, std::size_t{4096}, binary.size()}) {
    EXPECT_TRUE(prefixed(binary, piece, "") == binary) << piece;
  }
}

TEST(LinePrefixer, KeepsTheLastLines) {
  LinePrefixer lines("[0] ", 2);
  std::string out;
  lines.add("one\ntwo\r\n\nthree", out);
  EXPECT_THAT(lines.last_lines(), ElementsAre("one", "two"));
  lines.finish(out);
  EXPECT_THAT(lines.last_lines(), ElementsAre("two", "three"));
}

TEST(LinePrefixer, KeepsALongLineShortened) {
  LinePrefixer lines("", 2);
  std::string out;
  lines.add(std::string(10000, 'x') + "\n", out);
  ASSERT_EQ(lines.last_lines().size(), 1U);
  EXPECT_EQ(lines.last_lines().front(), std::string(1000, 'x'));
}

}  // namespace
}  // namespace lockstep::launch
