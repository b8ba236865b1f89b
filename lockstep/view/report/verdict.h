// What is wrong with a run, in a sentence, and what would be won by which remedy.
#pragma once

#include <string>
#include <vector>

#include "lockstep/view/report/analysis.h"

namespace lockstep::view {

enum class Problem {
  failure,       ///< the run failed
  late_rank,     ///< one rank keeps the others waiting
  uneven,        ///< ranks take turns in it
  data,          ///< all wait for their loaders
  small_step,    ///< too little is computed for what is communicated
  late_buckets,  ///< gradients are ready too late to be moved while backward runs
  slow_link,     ///< what is moved to one rank takes longer
  transfer,      ///< nothing covers what is moved
  busy_cores,    ///< ranks do not get their cores
};

struct Finding {
  Problem problem = Problem::failure;
  std::string text = {};    ///< a clause: "rank 3 arrives last in 91 % of steps, ..."
  std::string remedy = {};  ///< a sentence: what to do
  double gain_ns = 0;       ///< at most, of a step; without steps: of the run
  double share = 0;         ///< the same, of a step or of the run
};

struct Verdict {
  std::string sentence = {};
  std::vector<Finding> findings = {};  ///< those that win most first; a failure before all others
};

Verdict judge(const Analysis& analysis);

/// "4.2 ms", "850 us", "2.1 s".
std::string time_text(double ns);
/// "1.20 GB/s", "24.00 MB/s".
std::string rate_text(double bytes_per_second);
/// "38 %", "0.4 %".
std::string percent_text(double share);

}  // namespace lockstep::view
