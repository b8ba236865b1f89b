#include "lockstep/train/trainer/curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

EpochResult result(std::uint64_t epoch, double train_loss, double eval_loss = EpochResult::unknown,
                   double accuracy = EpochResult::unknown) {
  return {.epoch = epoch, .train_loss = train_loss, .eval_loss = eval_loss, .eval_accuracy = accuracy};
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// The names of the elements that are open when the text ends; "broken" where it is no XML of the kind that
/// is written here.
std::vector<std::string> open_elements(const std::string& svg) {
  std::vector<std::string> open;
  for (std::size_t at = 0; (at = svg.find('<', at)) != std::string::npos;) {
    const std::size_t end = svg.find('>', at);
    const std::string tag = end == std::string::npos ? "" : svg.substr(at + 1, end - at - 1);
    if (tag.empty() || tag.find('<') != std::string::npos || count(tag, "\"") % 2 != 0) return {"broken"};
    const std::string name = tag.substr(0, tag.find(' '));
    if (name[0] == '/') {
      if (open.empty() || open.back() != name.substr(1)) return {"broken"};
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end;
  }
  return open;
}

void expect_sound(const std::string& svg) {
  EXPECT_THAT(open_elements(svg), ElementsAre()) << svg;
  EXPECT_THAT(svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"500\""));
  for (const char* wrong : {"nan", "inf"}) EXPECT_THAT(svg, Not(HasSubstr(wrong)));
}

TEST(Curve, ShowsWhatWasMeasuredWithTicksAndNames) {
  const std::string svg = draw_curve(
      std::vector{result(0, 2, 1.9, 0.3), result(1, 1, 1.2, 0.6), result(2, 0.5, 0.9, 0.8)}, "Digits");
  expect_sound(svg);
  for (const char* text : {">Digits<", ">train loss<", ">eval loss<", ">eval accuracy<", ">epoch<", ">loss<",
                           ">accuracy<", ">1<", ">2<", ">3<", ">0.5<", ">1.5<", ">0.8<"})
    EXPECT_THAT(svg, HasSubstr(text));
  EXPECT_EQ(count(svg, "<path"), 3U);
  EXPECT_EQ(count(svg, "<circle"), 9U);
  // The axis of losses goes from 0 to 2, that of accuracies from 0 to 1, both over 70 to 440 from below.
  EXPECT_THAT(svg, HasSubstr("d=\"M70.0 70.0 L400.0 255.0 L730.0 347.5\""));
  EXPECT_THAT(svg, HasSubstr("d=\"M70.0 329.0 L400.0 218.0 L730.0 144.0\""));
}

TEST(Curve, LeavesOutLinesThatNobodyMeasured) {
  const std::string svg = draw_curve(std::vector{result(0, 2), result(1, 1)});
  expect_sound(svg);
  EXPECT_EQ(count(svg, "<path"), 1U);
  EXPECT_THAT(svg, AllOf(HasSubstr("train loss"), Not(HasSubstr("eval")), Not(HasSubstr("accuracy"))));
}

TEST(Curve, HasGapsWhereFiguresAreNoNumbers) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::string svg =
      draw_curve(std::vector{result(0, 4), result(1, std::nan("")), result(2, 2), result(3, inf),
                             result(4, -inf), result(5, 1), result(6, 0)});
  expect_sound(svg);
  EXPECT_THAT(svg, HasSubstr("d=\"M70.0 70.0 M290.0 255.0 M620.0 347.5 L730.0 440.0\""));
}

TEST(Curve, IsAPictureOfAnythingThatIsOfTheType) {
  const double inf = std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::max();
  const double least = std::numeric_limits<double>::denorm_min();
  const std::vector<std::vector<EpochResult>> histories = {{},
                                                           {result(0, 5)},
                                                           {result(0, std::nan(""), inf, -inf)},
                                                           {result(0, most, -most, 2)},
                                                           {result(0, least), result(1, 0)},
                                                           {result(0, 1e-9), result(1, 1.0000001e-9)},
                                                           {result(7, -3), result(8, -3)},
                                                           {result(UINT64_MAX, 1), result(UINT64_MAX - 1, 2)},
                                                           {result(9, 1), result(2, 2), result(2, 3)},
                                                           std::vector<EpochResult>(3000, result(3, 1))};
  for (const auto& history : histories) expect_sound(draw_curve(history));
  EXPECT_THAT(draw_curve({}), HasSubstr("nothing was measured yet"));
}

TEST(Curves, ShowSeveralTrainingsOverTheEpochsOfAll) {
  const std::vector<NamedHistory> trainings = {
      {"1 process", {result(0, 2, EpochResult::unknown, 0.5), result(1, 1, EpochResult::unknown, 0.75)}},
      {"<2> processes", {result(1, 4), result(2, 0)}}};
  const std::string svg = draw_curves(trainings, "Digits");
  expect_sound(svg);
  for (const char* text : {">Digits<", ">1 process<", ">&lt;2&gt; processes<", ">train loss (solid)<",
                           ">eval accuracy (dashed)<", ">1<", ">2<", ">3<"})
    EXPECT_THAT(svg, HasSubstr(text));
  // Epochs 1 to 3 over 70 to 730; losses 0 to 4 and accuracies 0 to 1 over 440 to 70.
  for (const char* line :
       {"stroke=\"#1f77b4\" stroke-width=\"2\" stroke-linejoin=\"round\" d=\"M70.0 255.0 L400.0 347.5\"",
        "stroke-dasharray=\"6 3\" d=\"M70.0 255.0 L400.0 162.5\"",
        "stroke=\"#d95f02\" stroke-width=\"2\" stroke-linejoin=\"round\" d=\"M400.0 70.0 L730.0 440.0\""})
    EXPECT_THAT(svg, HasSubstr(line));
  EXPECT_EQ(count(svg, "<path"), 3U) << "nobody measured the second one's accuracy";
}

TEST(Curves, OfNoneOrManyAreSound) {
  expect_sound(draw_curves({}));
  EXPECT_THAT(draw_curves({}), HasSubstr("nothing was measured yet"));
  const std::vector<NamedHistory> many(100, {"a training with a name that takes much room", {result(0, 1)}});
  expect_sound(draw_curves(many));
  EXPECT_EQ(count(draw_curves(many), "much room"), 2U) << "no name may stand outside of the picture";
}

TEST(Curve, HasFewTicksForManyEpochs) {
  std::vector<EpochResult> history;
  for (std::uint64_t epoch = 0; epoch < 1000; ++epoch) history.push_back(result(epoch, 1));
  const std::string svg = draw_curve(history);
  EXPECT_LE(count(svg, "text-anchor=\"middle\""), 16U);
  EXPECT_THAT(svg, AllOf(HasSubstr(">1<"), HasSubstr(">100<"), HasSubstr(">1000<")));
  EXPECT_EQ(count(svg, "<circle"), 1U) << "dots would hide the line";
}

TEST(Curve, TakesAnyTextAsItsTitle) {
  const auto title = [](const std::string& text) {
    const std::string svg = draw_curve({}, text);
    expect_sound(svg);
    const auto begin = svg.find("#111\">") + 6;
    return svg.substr(begin, svg.find("</text>", begin) - begin);
  };
  EXPECT_EQ(title("a <b> & \"c\""), "a &lt;b&gt; &amp; \"c\"");
  EXPECT_EQ(title("M\xc3\xbcnchen \xe2\x82\xac \xf0\x9f\x98\x80"),
            "M\xc3\xbcnchen \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(title(std::string("\0\n\x1b\x7f", 4)), "????");
  // Bytes that are no UTF-8: alone, cut, over-long, a surrogate, beyond Unicode; and two that XML excludes.
  EXPECT_EQ(title("\xff|\x80|\xc3"), "?|?|?");
  EXPECT_EQ(title("\xc0\x80|\xe0\x80\x80|\xed\xa0\x80|\xf5\x80\x80\x80"), "??|???|???|????");
  EXPECT_EQ(title("\xef\xbf\xbf|\xc2\x85"), "???|??");
}

TEST(Curve, IsAFileWholeOrNotAtAll) {
  std::string pattern = testing::TempDir() + "curve.XXXXXX";
  const fs::path folder = ::mkdtemp(pattern.data());
  const std::vector history = {result(0, 1)};
  for (const char* title : {"first", "second"}) {
    write_curve(folder / "curve.svg", history, title);
    std::ifstream in(folder / "curve.svg");
    const std::string content{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(content, draw_curve(history, title));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
  try {
    write_curve(folder / "none" / "curve.svg", history);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cannot write the curve "), HasSubstr("make it first")));
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace lockstep
