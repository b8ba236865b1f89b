// What is served by HTTP to whoever reaches an address: a request of a few lines, an answer, and the end of the connection, from
// an event loop of the caller's, so that nobody who connects, and then says nothing, much, or reads nothing, can hold it
// (docs/decisions/0023).
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/socket.h"
#include "lockstep/launch/poll_set.h"

namespace lockstep::launch {

/// Nobody can listen there.
class CannotServe : public Error {
 public:
  explicit CannotServe(const std::string& why) : Error(ErrorCode::invalid_argument, why) {}
};

struct HttpAnswer {
  std::string status = "200 OK";
  std::string type = "text/plain";  ///< of `body`
  std::string body = {};
  std::string headers = {};  ///< more of them, each with its end of a line
};

/// One thread at a time.
class HttpServer {
 public:
  /// When there are more, the oldest is dropped.
  static constexpr std::size_t most_clients = 32;
  static constexpr std::size_t most_request_bytes = 8192;
  /// From its connection to the end of its answer.
  static constexpr std::chrono::seconds client_limit{5};

  /// `answer`: to a GET of this path, without what follows a "?"; of other requests it is "". `what`: begins errors. Throws
  /// CannotServe.
  HttpServer(const Endpoint& endpoint, const std::string& what,
             std::function<HttpAnswer(const std::string& path)> answer);

  const Endpoint& endpoint() const { return listener_.endpoint(); }
  /// "http://127.0.0.1:9100"
  std::string address() const;
  /// Takes clients, requests and answers on as they are ready.
  void watch(PollSet& poll);
  Deadline wake_at() const;

 private:
  struct Client {
    Socket socket;
    Deadline until;
    std::string request = {};
    std::string answer = {};
    std::size_t sent = 0;
    bool is_done = false;
  };

  void accept();
  void take(Client& client);
  void read(Client& client);
  void send(Client& client);
  void drop_done();

  Listener listener_;
  std::function<HttpAnswer(const std::string& path)> answer_;
  std::list<std::shared_ptr<Client>> clients_;  // the oldest first
  Deadline accept_at_ = Deadline::after({});
};

}  // namespace lockstep::launch
