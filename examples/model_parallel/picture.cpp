#include "picture.h"

#include <algorithm>

#include "examples/support/line.h"

using examples::line;

namespace {

std::string name_of(const Timing& timing) {
  return timing.micro_batches == 1 ? timing.way
                                   : timing.way + ", " + std::to_string(timing.micro_batches) + " parts";
}

double longest(const std::vector<Timing>& timings) {
  double most = 1e-9;
  for (const Timing& timing : timings) most = std::max(most, timing.seconds + timing.deviation);
  return most;
}

}  // namespace

std::string bars(const std::vector<Timing>& timings) {
  constexpr double columns = 40;
  std::string text;
  for (const Timing& timing : timings) {
    const auto filled = static_cast<std::size_t>(columns * timing.seconds / longest(timings) + 0.5);
    const std::string spread =
        timing.deviation > 0 ? line(" +- %.4f", timing.deviation) : "";  // of one step there is none
    text += line("%-24s %8.4f s%s  ", name_of(timing).c_str(), timing.seconds, spread.c_str()) +
            std::string(filled, '#') + "\n";
  }
  return text;
}

std::string svg(const std::vector<Timing>& timings, const std::string& title) {
  constexpr int left = 190, width = 480, row = 34, top = 50;
  const int height = top + row * static_cast<int>(timings.size()) + 20;
  std::string text = line(
                         "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 %d\" "
                         "font-family=\"sans-serif\" font-size=\"14\">\n",
                         height) +
                     "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" +
                     line("<text x=\"20\" y=\"28\" font-size=\"16\">%s</text>\n", title.c_str());
  const double scale = width / longest(timings);
  for (std::size_t i = 0; i < timings.size(); ++i) {
    const Timing& timing = timings[i];
    const int y = top + row * static_cast<int>(i);
    const double end = left + scale * timing.seconds, spread = scale * timing.deviation;
    text += line("<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", left - 10, y + 17,
                 name_of(timing).c_str());
    text += line("<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"24\" fill=\"#3b6ea5\"/>\n", left, y,
                 end - left);
    text += line("<path d=\"M%.1f %d H%.1f\" stroke=\"black\"/>\n", end - spread, y + 12, end + spread);
    text += line("<text x=\"%.1f\" y=\"%d\">%.3f s</text>\n", end + spread + 8, y + 17, timing.seconds);
  }
  return text + "</svg>\n";
}

std::string csv(const std::vector<Timing>& timings) {
  std::string text = "way,micro_batches,seconds,deviation\n";
  for (const Timing& timing : timings)
    text +=
        line("%s,%d,%.6f,%.6f\n", timing.way.c_str(), timing.micro_batches, timing.seconds, timing.deviation);
  return text;
}
