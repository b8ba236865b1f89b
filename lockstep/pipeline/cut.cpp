#include "lockstep/pipeline/cut.h"

#include <algorithm>
#include <limits>

namespace lockstep::pipeline {

std::vector<std::size_t> cut_by_time(const std::vector<double>& times, std::size_t stages) {
  const std::size_t layers = times.size();
  std::vector<double> until(layers + 1);  // the sum of the first so many
  for (std::size_t i = 0; i < layers; ++i) until[i + 1] = until[i] + times[i];
  // slowest[s][i]: of the best cut of the layers from i on into s runs; length[s][i]: of its first run.
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector slowest(stages + 1, std::vector<double>(layers + 1, never));
  std::vector length(stages + 1, std::vector<std::size_t>(layers + 1, 0));
  slowest[0][layers] = 0;
  for (std::size_t s = 1; s <= stages; ++s) {
    for (std::size_t i = 0; i + s <= layers; ++i) {
      for (std::size_t end = i + 1; end + s - 1 <= layers; ++end) {
        const double found = std::max(until[end] - until[i], slowest[s - 1][end]);
        if (found > slowest[s][i]) continue;
        slowest[s][i] = found;
        length[s][i] = end - i;
      }
    }
  }
  std::vector<std::size_t> cut;
  for (std::size_t s = stages, i = 0; s > 0; --s) {
    cut.push_back(length[s][i]);
    i += cut.back();
  }
  return cut;
}

}  // namespace lockstep::pipeline
