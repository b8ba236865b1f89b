#include "lockstep/launch/metrics_server.h"

#include <utility>

#include "lockstep/base/env.h"

namespace lockstep::launch {

Endpoint parse_metrics_address(const std::string& what, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
  std::string host = colon == std::string::npos ? "127.0.0.1" : text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty()) throw_invalid_argument(what + " " + text + " names no address; write [ADDRESS:]PORT");
  return Endpoint::tcp(host, static_cast<std::uint16_t>(env::parse_integer(what, port, 0, 65535)));
}

MetricsServer::MetricsServer(const Endpoint& endpoint)
    : server_(endpoint, "--metrics", [this](const std::string& path) { return answer_to(path); }) {}

void MetricsServer::show(std::vector<view::LiveHost> hosts, const view::MetricsFacts& facts) {
  if (facts.restarts != facts_.restarts) earlier_ = now();
  hosts_ = std::move(hosts);
  facts_ = facts;
}

view::Metrics MetricsServer::now() const {
  view::Metrics metrics = view::metrics_of(facts_, hosts_);
  view::add_counters(metrics, earlier_);
  return metrics;
}

HttpAnswer MetricsServer::answer_to(const std::string& path) const {
  if (path == "/metrics")
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = view::text_of(now())};
  if (path == "/") return {.body = "This job's numbers are at /metrics.\n"};
  return {.status = "404 Not Found", .body = "There is /metrics, by GET, and nothing else.\n"};
}

}  // namespace lockstep::launch
