// Prometheus asks for a job's numbers by HTTP, and so may anyone who reaches the address. The launcher answers from its own
// event loop, so that nobody who connects, and then says nothing, much, or reads nothing, can hold it
// (docs/decisions/0023).
#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/socket.h"
#include "lockstep/launch/poll_set.h"
#include "lockstep/view/live/metrics.h"

namespace lockstep::launch {

/// "[ADDRESS:]PORT", the address being 127.0.0.1 where there is none. Throws invalid_argument beginning with `what`.
Endpoint parse_metrics_address(const std::string& what, const std::string& text);

/// Nobody can listen there.
class CannotServe : public Error {
 public:
  explicit CannotServe(const std::string& why) : Error(ErrorCode::invalid_argument, why) {}
};

/// One thread at a time.
class MetricsServer {
 public:
  /// When there are more, the oldest is dropped.
  static constexpr std::size_t most_clients = 32;
  static constexpr std::size_t most_request_bytes = 8192;
  /// From its connection to the end of its answer.
  static constexpr std::chrono::seconds client_limit{5};

  /// Throws CannotServe.
  explicit MetricsServer(const Endpoint& endpoint);

  /// "http://127.0.0.1:9100/metrics"
  std::string address() const;
  /// Takes clients, requests and answers on as they are ready.
  void watch(PollSet& poll);
  Deadline wake_at() const;
  /// What is told from now on. Counters go on where there were more `restarts` than before.
  void show(std::vector<view::LiveHost> hosts, const view::MetricsFacts& facts);

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
  std::string answer_to(const std::string& request) const;
  view::Metrics now() const;

  Listener listener_;
  std::list<std::shared_ptr<Client>> clients_;  // the oldest first
  std::vector<view::LiveHost> hosts_;
  view::MetricsFacts facts_;
  view::Metrics earlier_;  // of attempts before
  Deadline accept_at_ = Deadline::after({});
};

}  // namespace lockstep::launch
