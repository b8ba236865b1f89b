// What tests ask of a timeline's events.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::testing {

/// Of complete events of each row, whether they nest: what viewers need, and do not say where it is not so.
inline ::testing::AssertionResult nests(const nlohmann::json& events) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> rows;
  for (const nlohmann::json& event : events) {
    if (event["ph"] == "X")
      rows[{event["pid"], event["tid"]}].emplace_back(event["ts"].get<double>(),
                                                      event["ts"].get<double>() + event["dur"].get<double>());
  }
  for (auto& [row, ranges] : rows) {
    std::ranges::sort(ranges, [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<double> open;
    for (const auto& [begin, end] : ranges) {
      while (!open.empty() && open.back() <= begin + 1e-4) open.pop_back();
      if (!open.empty() && end > open.back() + 1e-3)
        return ::testing::AssertionFailure()
               << "rank " << row.first << ", row " << row.second << ": a range that ends at " << end
               << " is in one that ends at " << open.back();
      open.push_back(end);
    }
  }
  return ::testing::AssertionSuccess();
}

/// How often each rank has a range of this name.
inline std::map<int, int> count_ranges(const nlohmann::json& timeline, const std::string& name) {
  std::map<int, int> found;
  for (const nlohmann::json& event : timeline["traceEvents"]) {
    if (event["ph"] == "X" && event["name"] == name) ++found[event["pid"].get<int>()];
  }
  return found;
}

}  // namespace lockstep::testing
