#include "lockstep/train/trainer/curve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/base/svg.h"
#include "lockstep/train/trainer/axis.h"

namespace lockstep {
namespace {

constexpr double width = 800, height = 500;
constexpr double left = 70, right = 730, top = 70, bottom = 440;  // of the plot

using svg::add;
using svg::add_text;
using svg::escaped;

/// A line of the picture, and on which axis its figures are.
struct Line {
  std::string_view name;  ///< in the legend; empty: it has no place there
  const char* colour;
  double EpochResult::*figure;
  bool is_loss;
  std::span<const EpochResult> history;

  bool is_measured() const {
    return std::ranges::any_of(history,
                               [&](const EpochResult& result) { return std::isfinite(result.*figure); });
  }
};
using Lines = std::vector<Line>;

/// What the axes are called, and the colour of the right one.
struct AxisNames {
  const char* left;
  const char* right;
  const char* right_colour;
};

constexpr std::array colours = {"#1f77b4", "#d95f02", "#2a8c4a", "#8e44ad",
                                "#b8860b", "#16a2a2", "#c2185b", "#555555"};
constexpr std::size_t letter = 7;  // about the width of one

/// Of all losses, and 0 unless that is far below them all, and they are no constant.
Axis loss_axis(const Lines& lines) {
  std::vector<double> losses;
  for (const Line& line : lines) {
    for (const EpochResult& result : line.history) {
      if (line.is_loss && std::isfinite(result.*line.figure)) losses.push_back(result.*line.figure);
    }
  }
  if (losses.empty()) return {};
  const auto [least, greatest] = std::ranges::minmax(losses);
  const bool is_far = least > 0 && greatest - least < least / 4 && greatest - least > least / 1000;
  return axis_for(is_far ? least : std::min(0.0, least), is_far ? greatest : std::max(0.0, greatest));
}

/// Whole epochs, from the first to the last.
Axis epoch_axis(const Lines& lines) {
  double first = 1, last = 2;
  bool is_first = true;
  for (const Line& line : lines) {
    if (line.history.empty()) continue;
    const double begin = static_cast<double>(line.history.front().epoch) + 1;
    const double end = static_cast<double>(line.history.back().epoch) + 1;
    first = is_first ? begin : std::min(first, begin);
    last = is_first ? end : std::max(last, end);
    is_first = false;
  }
  const double high = std::max(last, first + std::max(1.0, first * 1e-9));  // however large: another number
  return {first, high, std::max(1.0, round_step((high - first) / 10))};
}

double y_of(const Axis& axis, double value) { return bottom - axis.share(value) * (bottom - top); }

/// Of a tick.
std::string number_at(double value, double step) {
  std::string text;
  add(text, "%.6g", std::abs(value) < step / 2 ? 0 : value);
  return text;
}

void add_horizontals(std::string& svg, const Axis& loss, const Axis& accuracy, const AxisNames& names) {
  for (int i = 0; i < loss.ticks(); ++i) {
    const double value = loss.low + i * loss.step;
    const double y = y_of(loss, value);
    add(svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e0e0e0\"/>\n", left, y, right,
        y);
    add_text(svg, left - 8, y + 4, "end", "#333", number_at(value, loss.step));
  }
  for (int i = 0; names.right != nullptr && i < accuracy.ticks(); ++i) {
    const double value = accuracy.low + i * accuracy.step;
    const double y = y_of(accuracy, value);
    add(svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", right, y, right + 5,
        y, names.right_colour);
    add_text(svg, right + 9, y + 4, "start", names.right_colour, number_at(value, accuracy.step));
  }
}

double x_of(const Axis& epochs, double epoch) {
  return std::clamp(left + epochs.share(epoch) * (right - left), left, right);
}

/// Ticks at the first epoch and at multiples of the step.
void add_epochs(std::string& svg, const Axis& epochs) {
  const auto tick = [&](double epoch) {
    const double x = x_of(epochs, epoch);
    add(svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#333\"/>\n", x, bottom, x,
        bottom + 5);
    add_text(svg, x, bottom + 20, "middle", "#333", number_at(epoch, 1));
  };
  tick(epochs.low);
  const double first = (std::floor(epochs.low / epochs.step) + 1) * epochs.step;
  const int most = static_cast<int>((epochs.high - first) / epochs.step);
  for (int i = 0; i <= most; ++i) {
    const double epoch = first + i * epochs.step;
    if (epoch <= epochs.high && epoch - epochs.low >= epochs.step / 2) tick(epoch);
  }
}

void add_line(std::string& svg, const Line& line, const Axis& epochs, const Axis& axis) {
  std::string path;
  bool is_joined = false;
  std::string dots;
  for (const EpochResult& result : line.history) {
    const double value = result.*line.figure;
    if (!std::isfinite(value)) {
      is_joined = false;
      continue;
    }
    const double x = x_of(epochs, static_cast<double>(result.epoch) + 1);
    const double y = std::clamp(y_of(axis, value), top, bottom);
    add(path, "%s%.1f %.1f", is_joined ? " L" : " M", x, y);
    // A lone figure has no line; where they are many, dots would hide it.
    if (line.history.size() <= 50 || !is_joined)
      add(dots, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n", x, y, line.colour);
    is_joined = true;
  }
  if (path.empty()) return;
  add(svg, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-linejoin=\"round\"%s d=\"",
      line.colour, line.is_loss ? "" : " stroke-dasharray=\"6 3\"");
  svg += path.substr(1) + "\"/>\n" + dots;
}

/// Names above the plot, as many as there is room for.
void add_legend(std::string& svg, const Lines& lines) {
  double x = left;
  for (const Line& line : lines) {
    if (line.name.empty()) continue;
    const double wide = 50.0 + static_cast<double>(letter * line.name.size());
    if (x + wide > width) return;
    add(svg, "<line x1=\"%.1f\" y1=\"51\" x2=\"%.1f\" y2=\"51\" stroke=\"%s\" stroke-width=\"2\"%s/>\n", x,
        x + 26, line.colour, line.is_loss ? "" : " stroke-dasharray=\"6 3\"");
    add_text(svg, x + 32, 55, "start", "#333", escaped(line.name));
    x += std::max(150.0, wide);
  }
}

void add_axis_names(std::string& svg, const AxisNames& names) {
  add_text(svg, (left + right) / 2, bottom + 44, "middle", "#333", "epoch");
  const auto turned = [&](double x, int angle, const char* colour, const char* name) {
    const double y = (top + bottom) / 2;
    add(svg, "<text x=\"%.1f\" y=\"%.1f\" transform=\"rotate(%d %.1f %.1f)\" text-anchor=\"middle\"", x, y,
        angle, x, y);
    add(svg, " fill=\"%s\">%s</text>\n", colour, name);
  };
  turned(18, -90, "#333", names.left);
  if (names.right != nullptr) turned(width - 18, 90, names.right_colour, names.right);
}

/// Without the lines of which nothing was measured.
std::string draw(Lines lines, AxisNames names, std::string_view title) {
  std::erase_if(lines, [](const Line& line) { return !line.is_measured(); });
  if (std::ranges::none_of(lines, [](const Line& line) { return !line.is_loss; })) names.right = nullptr;
  const Axis epochs = epoch_axis(lines), loss = loss_axis(lines), accuracy;
  std::string svg = svg::begin(width, height, 28, title);
  add_horizontals(svg, loss, accuracy, names);
  add_epochs(svg, epochs);
  add(svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" stroke=\"#333\"/>\n",
      left, top, right - left, bottom - top);
  add_axis_names(svg, names);
  for (const Line& line : lines) add_line(svg, line, epochs, line.is_loss ? loss : accuracy);
  add_legend(svg, lines);
  if (lines.empty())
    add_text(svg, (left + right) / 2, (top + bottom) / 2, "middle", "#777", "nothing was measured yet");
  return svg + "</svg>\n";
}

void write(const std::filesystem::path& path, const std::string& svg) {
  FileReplacement file(path, "curve");
  file.write(std::as_bytes(std::span(svg)));
  file.commit();
}

}  // namespace

std::string draw_curve(std::span<const EpochResult> history, std::string_view title) {
  return draw({{"train loss", colours[0], &EpochResult::train_loss, true, history},
               {"eval loss", colours[1], &EpochResult::eval_loss, true, history},
               {"eval accuracy", colours[2], &EpochResult::eval_accuracy, false, history}},
              {.left = "loss", .right = "accuracy", .right_colour = colours[2]}, title);
}

std::string draw_curves(std::span<const NamedHistory> trainings, std::string_view title) {
  Lines lines;
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    const auto& [name, history] = trainings[i];
    const char* const colour = colours[i % colours.size()];
    lines.push_back({name, colour, &EpochResult::train_loss, true, history});
    lines.push_back({{}, colour, &EpochResult::eval_accuracy, false, history});
  }
  return draw(std::move(lines),
              {.left = "train loss (solid)", .right = "eval accuracy (dashed)", .right_colour = "#333"},
              title);
}

void write_curve(const std::filesystem::path& path, std::span<const EpochResult> history,
                 std::string_view title) {
  write(path, draw_curve(history, title));
}

void write_curves(const std::filesystem::path& path, std::span<const NamedHistory> trainings,
                  std::string_view title) {
  write(path, draw_curves(trainings, title));
}

}  // namespace lockstep
