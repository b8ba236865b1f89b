// What the ways to run a model on several ranks took, as a picture and as a table.
#pragma once

#include <string>
#include <vector>

/// How long a step takes one way.
struct Timing {
  std::string way;
  int micro_batches = 1;
  double seconds = 0;    ///< mean
  double deviation = 0;  ///< standard
};

/// Bars of text, the longest as wide as the terminal takes; one line each.
std::string bars(const std::vector<Timing>& timings);
/// A bar each, with its deviation.
std::string svg(const std::vector<Timing>& timings, const std::string& title);
/// way,micro_batches,seconds,deviation
std::string csv(const std::vector<Timing>& timings);
