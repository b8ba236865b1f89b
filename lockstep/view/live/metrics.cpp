#include "lockstep/view/live/metrics.h"
#include "lockstep/base/words.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep::view {
namespace {

struct Family {
  const char* name;
  const char* type;
  const char* help;
};

constexpr std::array families = {
    Family{"lockstep_up", "gauge", "1 while the launcher runs."},
    Family{"lockstep_ranks", "gauge", "Ranks of the job, on all hosts."},
    Family{"lockstep_restarts", "gauge", "How often all ranks have started again after a failure."},
    Family{"lockstep_calls_total", "counter", "Collectives and messages that are over."},
    Family{"lockstep_call_bytes_total", "counter", "Bytes that were passed to them."},
    Family{"lockstep_call_seconds_total", "counter", "From their submission to their completion."},
    Family{"lockstep_wait_seconds_total", "counter", "Of it, until all others had come."},
    Family{"lockstep_blocked_seconds_total", "counter",
           "That the program stayed in them and in waits for them."},
    Family{"lockstep_training_steps_total", "counter", "Steps of training."},
    Family{"lockstep_step_seconds_total", "counter", "From their forward to the end of their communication."},
    Family{"lockstep_exposed_work_seconds_total", "counter",
           "Of it, copying and reducing that training waited for."},
    Family{"lockstep_exposed_wait_seconds_total", "counter", "Of it, waiting for other ranks."},
    Family{"lockstep_gradient_bytes_total", "counter", "Bytes of their gradients."},
    Family{"lockstep_resident_bytes", "gauge", "Resident memory of the rank's process."},
    Family{"lockstep_cpu_seconds_total", "counter", "Processor time of the rank's process."},
    Family{"lockstep_last_arrivals_total", "counter",
           "Collectives to which the rank came last, of those whose ranks are all on one host."},
    Family{"lockstep_counter", "gauge", "What the program says by traced_counter(), as last set."},
};

/// Any bytes as a label's value.
std::string label_value(const std::string& text) {
  using nlohmann::json;
  const std::string utf8 =
      json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
  std::string out;
  for (const char c : utf8) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '\\' || c == '"') out += '\\';
      out += c;
    }
  }
  return out;
}

std::string number_text(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", number);
}

void add_calls(Metrics& metrics, int rank, const std::string& operation, const trace::CallTotals& totals) {
  const std::string labels = fmt::format("{{rank=\"{}\",operation=\"{}\"}}", rank, operation);
  metrics["lockstep_calls_total"][labels] += static_cast<double>(totals.calls);
  metrics["lockstep_call_bytes_total"][labels] += static_cast<double>(totals.bytes);
  metrics["lockstep_call_seconds_total"][labels] += base::in_seconds(totals.ns);
  metrics["lockstep_wait_seconds_total"][labels] += base::in_seconds(totals.waited_ns);
  metrics["lockstep_blocked_seconds_total"][labels] += base::in_seconds(totals.blocked_ns);
}

void add_rank(Metrics& metrics, const trace::FlightRank& rank, const LiveRank& live) {
  for (const trace::TotalsRow& row : rank.totals) {
    add_calls(metrics, rank.rank, name_of_call(row.of.operation, row.of.has_counts), row.totals);
  }
  if (rank.totals_left_out.calls > 0) add_calls(metrics, rank.rank, "other", rank.totals_left_out);
  const std::string labels = fmt::format("{{rank=\"{}\"}}", rank.rank);
  metrics["lockstep_training_steps_total"][labels] = static_cast<double>(rank.steps.steps);
  metrics["lockstep_step_seconds_total"][labels] = base::in_seconds(rank.steps.ns);
  metrics["lockstep_exposed_work_seconds_total"][labels] = base::in_seconds(rank.steps.exposed_work_ns);
  metrics["lockstep_exposed_wait_seconds_total"][labels] = base::in_seconds(rank.steps.exposed_wait_ns);
  metrics["lockstep_gradient_bytes_total"][labels] = static_cast<double>(rank.steps.gradient_bytes);
  metrics["lockstep_last_arrivals_total"][labels] = static_cast<double>(live.last_arrivals);
  if (live.resident_bytes > 0)
    metrics["lockstep_resident_bytes"][labels] = static_cast<double>(live.resident_bytes);
  auto& processor = metrics["lockstep_cpu_seconds_total"];
  processor[fmt::format("{{rank=\"{}\",mode=\"user\"}}", rank.rank)] = base::in_seconds(live.user_ns);
  processor[fmt::format("{{rank=\"{}\",mode=\"system\"}}", rank.rank)] = base::in_seconds(live.system_ns);
  for (const NamedValue& counter : live.counters) {
    metrics["lockstep_counter"]
           [fmt::format("{{name=\"{}\",rank=\"{}\"}}", label_value(counter.name), rank.rank)] = counter.value;
  }
}

}  // namespace

Metrics metrics_of(const MetricsFacts& facts, const std::vector<LiveHost>& hosts) {
  Metrics metrics;
  metrics["lockstep_up"][""] = 1;
  metrics["lockstep_ranks"][""] = facts.ranks;
  metrics["lockstep_restarts"][""] = facts.restarts;
  for (const LiveHost& host : hosts) {
    for (std::size_t i = 0; i < host.ranks.size(); ++i) {
      if (host.record.ranks[i].joined) add_rank(metrics, host.record.ranks[i], host.ranks[i]);
    }
  }
  return metrics;
}

void add_counters(Metrics& metrics, const Metrics& earlier) {
  for (const Family& family : families) {
    const auto found = earlier.find(family.name);
    if (std::string_view(family.type) != "counter" || found == earlier.end()) continue;
    for (const auto& [labels, value] : found->second) metrics[family.name][labels] += value;
  }
}

std::string text_of(const Metrics& metrics) {
  std::string text;
  for (const Family& family : families) {
    const auto found = metrics.find(family.name);
    if (found == metrics.end()) continue;
    text += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", family.name, family.type, family.help);
    for (const auto& [labels, value] : found->second)
      text += fmt::format("{}{} {}\n", family.name, labels, number_text(value));
  }
  return text;
}

}  // namespace lockstep::view
