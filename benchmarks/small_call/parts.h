// What the parts of a small all-reduce cost one by one: one thread, everything in its cache, nobody to wait
// for.
#pragma once

#include <string>
#include <vector>

namespace bench {

struct Part {
  std::string name;
  double ns = 0;  ///< per call: the median of batches
};

/// In the order in which a call of 4 bytes meets them.
std::vector<Part> measure_parts();

}  // namespace bench
