// What a job's ranks have done so far, as Prometheus reads it: text exposition format 0.0.4.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/view/live/live_reader.h"

namespace lockstep::view {

struct MetricsFacts {
  int ranks = 0;     ///< of the job, on all hosts
  int restarts = 0;  ///< that were before this attempt
};

/// Numbers by their labels ({rank="0",operation="barrier"}), by their name.
using Metrics = std::map<std::string, std::map<std::string, double>>;

/// Of the ranks of `hosts`, in seconds and bytes. Ranks that have not joined have none.
Metrics metrics_of(const MetricsFacts& facts, const std::vector<LiveHost>& hosts);

/// Adds what an earlier attempt has counted, so that no counter goes backwards where ranks start again.
void add_counters(Metrics& metrics, const Metrics& earlier);

/// As it is served, each name with its HELP and TYPE.
std::string text_of(const Metrics& metrics);

}  // namespace lockstep::view
