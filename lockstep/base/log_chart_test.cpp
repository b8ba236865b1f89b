#include "lockstep/base/log_chart.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::base {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LogChart, PutsDecadesAtEqualDistances) {
  const std::string svg = draw_log_chart({{.name = "ring", .points = {{1, 10}, {10, 100}, {100, 1000}}}},
                                         "growth", "ranks", "us");
  // The plot is 520 wide from 80 on, and 380 high up from 440.
  EXPECT_THAT(svg, HasSubstr("d=\"M80.0 440.0 L340.0 250.0 L600.0 60.0\""));
}

TEST(LogChart, LeavesOutWhatHasNoLogarithm) {
  const std::string svg = draw_log_chart(
      {{.name = "ring", .points = {{1, 1}, {0, 1}, {1, -1}, {NAN, 1}, {1, INFINITY}, {10, 10}}},
       {.name = "none"}},
      "growth", "ranks", "us");
  EXPECT_THAT(svg, HasSubstr("d=\"M80.0 440.0 L600.0 60.0\""));
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf")), HasSubstr(">none<")));
}

TEST(LogChart, OfNothingHasAxes) { EXPECT_THAT(draw_log_chart({}, "", "", ""), HasSubstr("</svg>")); }

TEST(LogChart, NamesAreText) {
  const std::string svg = draw_log_chart({{.name = "<a>"}}, "<b>", "<c>", "<d>");
  for (const char* name : {"&lt;a&gt;", "&lt;b&gt;", "&lt;c&gt;", "&lt;d&gt;"})
    EXPECT_THAT(svg, HasSubstr(name));
}

}  // namespace
}  // namespace lockstep::base
