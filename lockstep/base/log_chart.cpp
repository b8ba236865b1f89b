#include "lockstep/base/log_chart.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/svg.h"

namespace lockstep::base {
namespace {

using svg::add;
using svg::add_text;
using svg::escaped;

constexpr double width = 800, height = 500;
constexpr double left = 80, right = 600, top = 60, bottom = 440;  // of the plot
constexpr std::array colours = {"#1f77b4", "#d95f02", "#2a8c4a", "#8e44ad",
                                "#b8860b", "#16a2a2", "#c2185b", "#555555"};

bool is_shown(const LogLine::Point& point) {
  return std::isfinite(point.x) && std::isfinite(point.y) && point.x > 0 && point.y > 0;
}

/// Whole decades.
struct Decades {
  int low = 0, high = 1;

  double share(double value) const { return (std::log10(value) - low) / (high - low); }
};

Decades decades_of(const std::vector<LogLine>& lines, double LogLine::Point::*coordinate) {
  double least = INFINITY, most = 0;
  for (const LogLine& line : lines) {
    for (const LogLine::Point& point : line.points) {
      if (!is_shown(point)) continue;
      least = std::min(least, point.*coordinate);
      most = std::max(most, point.*coordinate);
    }
  }
  if (most <= 0) return {};
  const int low = static_cast<int>(std::floor(std::log10(least)));
  return {low, std::max(low + 1, static_cast<int>(std::ceil(std::log10(most))))};
}

std::string tick_name(int decade) {
  std::string text;
  add(text, decade >= -3 && decade <= 6 ? "%.*f" : "%.*e", decade < 0 && decade >= -3 ? -decade : 0,
      std::pow(10.0, decade));
  return text;
}

void add_axes(std::string& svg, const Decades& x, const Decades& y) {
  for (int decade = x.low; decade <= x.high; ++decade) {
    const double at = left + x.share(std::pow(10.0, decade)) * (right - left);
    add(svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e0e0e0\"/>\n", at, top, at,
        bottom);
    add_text(svg, at, bottom + 20, "middle", "#333", tick_name(decade));
  }
  for (int decade = y.low; decade <= y.high; ++decade) {
    const double at = bottom - y.share(std::pow(10.0, decade)) * (bottom - top);
    add(svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e0e0e0\"/>\n", left, at, right,
        at);
    add_text(svg, left - 8, at + 4, "end", "#333", tick_name(decade));
  }
  add(svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" stroke=\"#333\"/>\n",
      left, top, right - left, bottom - top);
}

void add_line(std::string& svg, const LogLine& line, const char* colour, const Decades& x, const Decades& y) {
  std::string path, dots;
  for (const LogLine::Point& point : line.points) {
    if (!is_shown(point)) continue;
    const double across = left + x.share(point.x) * (right - left);
    const double up = bottom - y.share(point.y) * (bottom - top);
    add(path, "%s%.1f %.1f", path.empty() ? "M" : " L", across, up);
    add(dots, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n", across, up, colour);
  }
  if (path.empty()) return;
  add(svg, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-linejoin=\"round\" d=\"", colour);
  svg += path + "\"/>\n" + dots;
}

}  // namespace

std::string draw_log_chart(const std::vector<LogLine>& lines, std::string_view title, std::string_view x_name,
                           std::string_view y_name) {
  const Decades x = decades_of(lines, &LogLine::Point::x), y = decades_of(lines, &LogLine::Point::y);
  std::string svg = svg::begin(width, height, 32, title);
  add_axes(svg, x, y);
  add_text(svg, (left + right) / 2, bottom + 44, "middle", "#333", escaped(x_name));
  const double middle = (top + bottom) / 2;
  add(svg,
      "<text x=\"18\" y=\"%.1f\" transform=\"rotate(-90 18 %.1f)\" text-anchor=\"middle\" fill=\"#333\">",
      middle, middle);
  svg += escaped(y_name) + "</text>\n";
  double legend = top + 10;
  for (std::size_t index = 0; index < lines.size(); ++index) {
    const char* colour = colours[index % colours.size()];
    add_line(svg, lines[index], colour, x, y);
    add(svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2\"/>\n",
        right + 14, legend - 4, right + 38, legend - 4, colour);
    add_text(svg, right + 44, legend, "start", "#333", escaped(lines[index].name));
    legend += 20;
  }
  return svg + "</svg>\n";
}

}  // namespace lockstep::base
