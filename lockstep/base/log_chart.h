// A chart with logarithmic axes: how something grows over ranks or bytes, a line for each way to do it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

struct LogLine {
  struct Point {
    double x = 0, y = 0;
  };
  std::string name;  ///< any text
  std::vector<Point> points = {};
};

/// An SVG of 800 x 500. Points that are not finite or not above 0 are left out. `title` and axis names are any text; what
/// cannot stand in XML is replaced.
std::string draw_log_chart(const std::vector<LogLine>& lines, std::string_view title, std::string_view x_name,
                           std::string_view y_name);

}  // namespace lockstep::base
