// Prometheus asks for a job's numbers by HTTP, and so may anyone who reaches the address: the launcher answers.
#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/http_server.h"
#include "lockstep/view/live/metrics.h"

namespace lockstep::launch {

/// "[ADDRESS:]PORT", the address being 127.0.0.1 where there is none. Throws invalid_argument beginning with `what`.
Endpoint parse_metrics_address(const std::string& what, const std::string& text);

/// One thread at a time.
class MetricsServer {
 public:
  /// Throws CannotServe.
  explicit MetricsServer(const Endpoint& endpoint);
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  /// "http://127.0.0.1:9100/metrics"
  std::string address() const { return server_.address() + "/metrics"; }
  void watch(PollSet& poll) { server_.watch(poll); }
  Deadline wake_at() const { return server_.wake_at(); }
  /// What is told from now on. Counters go on where there were more `restarts` than before.
  void show(std::vector<view::LiveHost> hosts, const view::MetricsFacts& facts);

 private:
  HttpAnswer answer_to(const std::string& path) const;
  view::Metrics now() const;

  HttpServer server_;
  std::vector<view::LiveHost> hosts_;
  view::MetricsFacts facts_;
  view::Metrics earlier_;  // of attempts before
};

}  // namespace lockstep::launch
