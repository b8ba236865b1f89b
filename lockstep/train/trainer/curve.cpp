#include "lockstep/train/trainer/curve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <vector>

#include "lockstep/base/file.h"

namespace lockstep {
namespace {

constexpr double width = 800, height = 500;
constexpr double left = 70, right = 730, top = 70, bottom = 440;  // of the plot

/// A line of the picture, and on which axis its figures are.
struct Line {
  const char* name;
  const char* colour;
  double EpochResult::*figure;
  bool is_loss;
};
constexpr std::array lines = {
    Line{"train loss", "#1f77b4", &EpochResult::train_loss, true},
    Line{"eval loss", "#d95f02", &EpochResult::eval_loss, true},
    Line{"eval accuracy", "#2a8c4a", &EpochResult::eval_accuracy, false},
};

/// As printf.
template <class... Values>
void add(std::string& svg, const char* format, Values... values) {
  std::array<char, 400> text{};
  const int length = std::snprintf(text.data(), text.size(), format, values...);
  svg.append(text.data(), std::min(static_cast<std::size_t>(std::max(length, 0)), text.size() - 1));
}

/// Bytes of the UTF-8 character that `text` begins with; 0 if that is none, or none that XML may hold.
std::size_t character_at(std::string_view text) {
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  std::uint32_t code = first & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::array<std::uint32_t, 5> least = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  const bool is_none = code == 0xfffe || code == 0xffff || code > 0x10ffff || (code >= 0x80 && code < 0xa0);
  return first < 0xc2 || first > 0xf4 || code < least[bytes] || is_surrogate || is_none ? 0 : bytes;
}

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = character_at(text);
    if (bytes == 0) {
      out += '?';
    } else if (text[0] == '<') {
      out += "&lt;";
    } else if (text[0] == '>') {
      out += "&gt;";
    } else if (text[0] == '&') {
      out += "&amp;";
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max(bytes, std::size_t{1}));
  }
  return out;
}

/// An axis from `low` to `high` with a tick at each multiple of `step`.
struct Axis {
  double low = 0, high = 1, step = 0.2;

  double share(double value) const { return (value - low) / (high - low); }
  int ticks() const { return static_cast<int>(std::lround((high - low) / step)) + 1; }
};

/// 1, 2 or 5 times a power of ten, at least `least`.
double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= least * (1 - 1e-9)) return times * power;
  }
  return 10 * power;
}

/// Holds `low` to `high`, both finite, on about six ticks.
Axis axis_for(double low, double high) {
  // So that neither the difference nor a step of it is infinite or vanishes beside the values.
  constexpr double most = 1e300;
  low = std::clamp(low, -most, most);
  high = std::clamp(high, -most, most);
  const double range = std::max({high - low, 1e-6 * std::max(std::abs(low), std::abs(high)), 1e-300});
  const double step = round_step(range / 5);
  Axis axis{std::floor(low / step + 1e-9) * step, std::ceil(high / step - 1e-9) * step, step};
  if (axis.high <= axis.low) axis.high = axis.low + step;
  return axis;
}

/// Of all losses, and 0 unless that is far below them all, and they are no constant.
Axis loss_axis(std::span<const EpochResult> history) {
  std::vector<double> losses;
  for (const EpochResult& result : history) {
    for (const Line& line : lines) {
      if (line.is_loss && std::isfinite(result.*line.figure)) losses.push_back(result.*line.figure);
    }
  }
  if (losses.empty()) return {};
  const auto [least, greatest] = std::ranges::minmax(losses);
  const bool is_far = least > 0 && greatest - least < least / 4 && greatest - least > least / 1000;
  return axis_for(is_far ? least : std::min(0.0, least), is_far ? greatest : std::max(0.0, greatest));
}

/// Whole epochs, from the first to the last.
Axis epoch_axis(std::span<const EpochResult> history) {
  const double first = history.empty() ? 1 : static_cast<double>(history.front().epoch) + 1;
  const double last = history.empty() ? 2 : static_cast<double>(history.back().epoch) + 1;
  const double high = std::max(last, first + std::max(1.0, first * 1e-9));  // however large: another number
  return {first, high, std::max(1.0, round_step((high - first) / 10))};
}

double y_of(const Axis& axis, double value) { return bottom - axis.share(value) * (bottom - top); }

void add_text(std::string& svg, double x, double y, const char* anchor, const char* colour,
              const std::string& text) {
  add(svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">", x, y, anchor, colour);
  svg += text + "</text>\n";
}

std::string number_text(double value, double step) {
  std::string text;
  add(text, "%.6g", std::abs(value) < step / 2 ? 0 : value);
  return text;
}

void add_horizontals(std::string& svg, const Axis& loss, const Axis& accuracy, bool has_accuracy) {
  for (int i = 0; i < loss.ticks(); ++i) {
    const double value = loss.low + i * loss.step;
    const double y = y_of(loss, value);
    add(svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e0e0e0\"/>\n", left, y, right,
        y);
    add_text(svg, left - 8, y + 4, "end", "#333", number_text(value, loss.step));
  }
  for (int i = 0; has_accuracy && i < accuracy.ticks(); ++i) {
    const double value = accuracy.low + i * accuracy.step;
    const double y = y_of(accuracy, value);
    add(svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#2a8c4a\"/>\n", right, y,
        right + 5, y);
    add_text(svg, right + 9, y + 4, "start", "#2a8c4a", number_text(value, accuracy.step));
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
    add_text(svg, x, bottom + 20, "middle", "#333", number_text(epoch, 1));
  };
  tick(epochs.low);
  const double first = (std::floor(epochs.low / epochs.step) + 1) * epochs.step;
  const int most = static_cast<int>((epochs.high - first) / epochs.step);
  for (int i = 0; i <= most; ++i) {
    const double epoch = first + i * epochs.step;
    if (epoch <= epochs.high && epoch - epochs.low >= epochs.step / 2) tick(epoch);
  }
}

void add_line(std::string& svg, const Line& line, std::span<const EpochResult> history, const Axis& epochs,
              const Axis& axis) {
  std::string path;
  bool is_joined = false;
  std::string dots;
  for (const EpochResult& result : history) {
    const double value = result.*line.figure;
    if (!std::isfinite(value)) {
      is_joined = false;
      continue;
    }
    const double x = x_of(epochs, static_cast<double>(result.epoch) + 1);
    const double y = std::clamp(y_of(axis, value), top, bottom);
    add(path, "%s%.1f %.1f", is_joined ? " L" : " M", x, y);
    // A lone figure has no line; where they are many, dots would hide it.
    if (history.size() <= 50 || !is_joined)
      add(dots, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n", x, y, line.colour);
    is_joined = true;
  }
  if (path.empty()) return;
  add(svg, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-linejoin=\"round\"%s d=\"",
      line.colour, line.is_loss ? "" : " stroke-dasharray=\"6 3\"");
  svg += path.substr(1) + "\"/>\n" + dots;
}

/// What there is of a line, and where its name stands above the plot.
void add_legend(std::string& svg, std::span<const Line> shown) {
  double x = left;
  for (const Line& line : shown) {
    add(svg, "<line x1=\"%.1f\" y1=\"51\" x2=\"%.1f\" y2=\"51\" stroke=\"%s\" stroke-width=\"2\"%s/>\n", x,
        x + 26, line.colour, line.is_loss ? "" : " stroke-dasharray=\"6 3\"");
    add_text(svg, x + 32, 55, "start", "#333", line.name);
    x += 150;
  }
}

void add_axis_names(std::string& svg, bool has_accuracy) {
  add_text(svg, (left + right) / 2, bottom + 44, "middle", "#333", "epoch");
  const auto turned = [&](double x, int angle, const char* colour, const char* name) {
    const double y = (top + bottom) / 2;
    add(svg, "<text x=\"%.1f\" y=\"%.1f\" transform=\"rotate(%d %.1f %.1f)\" text-anchor=\"middle\"", x, y,
        angle, x, y);
    add(svg, " fill=\"%s\">%s</text>\n", colour, name);
  };
  turned(18, -90, "#333", "loss");
  if (has_accuracy) turned(width - 18, 90, "#2a8c4a", "accuracy");
}

}  // namespace

std::string draw_curve(std::span<const EpochResult> history, std::string_view title) {
  std::vector<Line> shown;
  std::ranges::copy_if(lines, std::back_inserter(shown), [&](const Line& line) {
    return std::ranges::any_of(history,
                               [&](const EpochResult& result) { return std::isfinite(result.*line.figure); });
  });
  const bool has_accuracy = std::ranges::any_of(shown, [](const Line& line) { return !line.is_loss; });
  const Axis epochs = epoch_axis(history), loss = loss_axis(history), accuracy;
  std::string svg;
  add(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\"", width, height);
  add(svg, " viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"13\">\n", width, height);
  svg += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  svg += "<text x=\"400\" y=\"28\" text-anchor=\"middle\" font-size=\"17\" fill=\"#111\">" + escaped(title) +
         "</text>\n";
  add_horizontals(svg, loss, accuracy, has_accuracy);
  add_epochs(svg, epochs);
  add(svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" stroke=\"#333\"/>\n",
      left, top, right - left, bottom - top);
  add_axis_names(svg, has_accuracy);
  for (const Line& line : shown) add_line(svg, line, history, epochs, line.is_loss ? loss : accuracy);
  add_legend(svg, shown);
  if (shown.empty())
    add_text(svg, (left + right) / 2, (top + bottom) / 2, "middle", "#777", "nothing was measured yet");
  return svg + "</svg>\n";
}

void write_curve(const std::filesystem::path& path, std::span<const EpochResult> history,
                 std::string_view title) {
  const std::string svg = draw_curve(history, title);
  FileReplacement file(path, "curve");
  file.write(std::as_bytes(std::span(svg)));
  file.commit();
}

}  // namespace lockstep
