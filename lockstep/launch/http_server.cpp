#include "lockstep/launch/http_server.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

namespace lockstep::launch {
namespace {

constexpr std::string_view end_of_request = "\r\n\r\n";

Listener bind_or_explain(const Endpoint& endpoint, const std::string& what) {
  try {
    return Listener::bind(endpoint, what);
  } catch (const Error& error) {
    throw CannotServe(what + ": " + error.what());
  }
}

std::string text_of(const HttpAnswer& answer) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n{}",
                     answer.status, answer.type, answer.body.size(), answer.headers, answer.body);
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

HttpServer::HttpServer(const Endpoint& endpoint, const std::string& what,
                       std::function<HttpAnswer(const std::string& path)> answer)
    : listener_(bind_or_explain(endpoint, what)), answer_(std::move(answer)) {}

std::string HttpServer::address() const {
  return "http" + listener_.endpoint().to_string().substr(3).insert(1, "//");
}

void HttpServer::watch(PollSet& poll) {
  drop_done();
  if (accept_at_.expired()) poll.watch(listener_.fd(), POLLIN, [this] { accept(); });
  for (const auto& client : clients_) {
    poll.watch(client->socket.fd(), client->answer.empty() ? POLLIN : POLLOUT, [this, client] {
      if (!client->is_done) take(*client);
    });
  }
}

Deadline HttpServer::wake_at() const {
  const Deadline next = accept_at_.expired() ? Deadline::never() : accept_at_;
  return clients_.empty() ? next : next.earlier_of(clients_.front()->until);
}

void HttpServer::drop_done() {
  std::erase_if(clients_, [](const auto& client) { return client->is_done || client->until.expired(); });
}

void HttpServer::accept() try {
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

void HttpServer::take(Client& client) try {
  if (client.answer.empty()) read(client);
  if (!client.answer.empty()) send(client);
} catch (const Error&) {  // it is gone
  client.is_done = true;
}

void HttpServer::read(Client& client) {
  std::array<char, 2048> buffer;
  const auto got = client.socket.try_receive(std::as_writable_bytes(std::span(buffer)));
  if (!got) return;
  client.is_done = *got == 0;
  client.request.append(buffer.data(), *got);
  if (client.request.find(end_of_request) != std::string::npos) {
    client.answer = text_of(answer_(path_of(client.request)));
  } else if (client.request.size() > most_request_bytes) {
    client.answer = text_of({.status = "431 Request Header Fields Too Large", .body = "that is too long\n"});
  }
}

void HttpServer::send(Client& client) {
  while (client.sent < client.answer.size()) {
    const auto rest = std::span(client.answer).subspan(client.sent);
    const auto sent = client.socket.try_send(std::as_bytes(rest));
    if (!sent) return;
    client.sent += *sent;
  }
  client.is_done = true;
}

}  // namespace lockstep::launch
