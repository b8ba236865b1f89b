#include "lockstep/launch/metrics_server.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "lockstep/base/env.h"

namespace lockstep::launch {
namespace {

constexpr std::string_view end_of_request = "\r\n\r\n";

Listener bind_or_explain(const Endpoint& endpoint) {
  try {
    return Listener::bind(endpoint, "--metrics");
  } catch (const Error& error) {
    throw CannotServe(std::string("--metrics: ") + error.what());
  }
}

std::string response(std::string_view status, std::string_view type, const std::string& body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                     status, type, body.size(), body);
}

/// What a request asks for; "": none that is served.
std::string path_of(const std::string& request) {
  const std::string line = request.substr(0, request.find("\r\n"));
  constexpr std::string_view method = "GET ";
  const std::size_t end = line.rfind(" HTTP/1.");
  if (!line.starts_with(method) || end == std::string::npos || end < method.size()) return {};
  return line.substr(method.size(), std::min(end, line.find('?')) - method.size());
}

}  // namespace

Endpoint parse_metrics_address(const std::string& what, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
  std::string host = colon == std::string::npos ? "127.0.0.1" : text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty()) throw_invalid_argument(what + " " + text + " names no address; write [ADDRESS:]PORT");
  return Endpoint::tcp(host, static_cast<std::uint16_t>(env::parse_integer(what, port, 0, 65535)));
}

MetricsServer::MetricsServer(const Endpoint& endpoint) : listener_(bind_or_explain(endpoint)) {}

std::string MetricsServer::address() const {
  return "http" + listener_.endpoint().to_string().substr(3).insert(1, "//") + "/metrics";
}

void MetricsServer::watch(PollSet& poll) {
  drop_done();
  if (accept_at_.expired()) poll.watch(listener_.fd(), POLLIN, [this] { accept(); });
  for (const auto& client : clients_) {
    poll.watch(client->socket.fd(), client->answer.empty() ? POLLIN : POLLOUT, [this, client] {
      if (!client->is_done) take(*client);
    });
  }
}

Deadline MetricsServer::wake_at() const {
  const Deadline next = accept_at_.expired() ? Deadline::never() : accept_at_;
  return clients_.empty() ? next : next.earlier_of(clients_.front()->until);
}

void MetricsServer::drop_done() {
  std::erase_if(clients_, [](const auto& client) { return client->is_done || client->until.expired(); });
}

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

void MetricsServer::accept() try {
  while (auto socket = listener_.try_accept()) {
    if (clients_.size() == most_clients) {
      clients_.front()->is_done = true;  // its turn in this wait may still come
      clients_.pop_front();
    }
    clients_.push_back(std::make_shared<Client>(
        Client{.socket = std::move(*socket), .until = Deadline::after(client_limit)}));
  }
} catch (const Error&) {  // no descriptors
  accept_at_ = Deadline::after(std::chrono::seconds(1));
}

void MetricsServer::take(Client& client) try {
  if (client.answer.empty()) read(client);
  if (!client.answer.empty()) send(client);
} catch (const Error&) {  // it is gone
  client.is_done = true;
}

void MetricsServer::read(Client& client) {
  std::array<char, 2048> buffer;
  const auto got = client.socket.try_receive(std::as_writable_bytes(std::span(buffer)));
  if (!got) return;
  client.is_done = *got == 0;
  client.request.append(buffer.data(), *got);
  if (client.request.find(end_of_request) != std::string::npos) {
    client.answer = answer_to(client.request);
  } else if (client.request.size() > most_request_bytes) {
    client.answer = response("431 Request Header Fields Too Large", "text/plain", "that is too long\n");
  }
}

void MetricsServer::send(Client& client) {
  while (client.sent < client.answer.size()) {
    const auto rest = std::span(client.answer).subspan(client.sent);
    const auto sent = client.socket.try_send(std::as_bytes(rest));
    if (!sent) return;
    client.sent += *sent;
  }
  client.is_done = true;
}

std::string MetricsServer::answer_to(const std::string& request) const {
  const std::string path = path_of(request);
  if (path == "/metrics")
    return response("200 OK", "text/plain; version=0.0.4; charset=utf-8", view::text_of(now()));
  if (path == "/") return response("200 OK", "text/plain", "This job's numbers are at /metrics.\n");
  return response("404 Not Found", "text/plain", "There is /metrics, by GET, and nothing else.\n");
}

}  // namespace lockstep::launch
