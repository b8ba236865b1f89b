#include "lockstep/rendezvous/store_server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/start_thread.h"
#include "lockstep/rendezvous/store_connection.h"
#include "lockstep/rendezvous/store_service.h"

namespace lockstep {
namespace {

using Clock = Deadline::Clock;

constexpr int accepts_per_turn = 64;
constexpr auto pause_when_refused = std::chrono::milliseconds(100);  // the system is out of descriptors
constexpr int most_complaints = 20;                                  // a port scanner must not fill the log

}  // namespace

// One turn of the loop: wait for any descriptor, then give each that is ready one bounded piece of work.
class StoreServer::Loop {
 public:
  Loop(Listener listener, StoreServerOptions options)
      : listener_(std::move(listener)),
        options_(std::move(options)),
        destination_(store_wire::destination_of(options_.job, listener_->endpoint())),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)),
        stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        service_(options_.limits),
        unproven_(options_.unproven) {
    if (!epoll_ || !stop_) throw_system("store server");
    control(EPOLL_CTL_ADD, stop_.get(), EPOLLIN);
    control(EPOLL_CTL_ADD, listener_->fd(), EPOLLIN);
  }

  void run() noexcept {
    try {
      while (turn()) {
      }
    } catch (const std::exception& error) {
      log::error(std::string("the store's server ends: ") + error.what());
    }
    while (!clients_.empty()) drop(clients_.begin()->first);
    listener_.reset();
  }

  void stop() noexcept { (void)::eventfd_write(stop_.get(), 1); }

  int clients() const { return proven_; }
  int waiting() const { return waiting_; }

 private:
  struct Client {
    StoreConnection connection;
    std::uint32_t interest;
    bool is_counted = false;  // in proven_
  };

  bool turn();
  void accept_clients();
  void admit(Socket socket);
  void serve(int fd);
  void settle(int fd);
  void drop(int fd);
  void drop_late();
  Deadline next_deadline() const;
  void update_listening();
  void publish();
  void complain(const std::string& text);
  void control(int operation, int fd, std::uint32_t events);

  std::optional<Listener> listener_;
  const StoreServerOptions options_;
  const Destination destination_;
  const UniqueFd epoll_;
  const UniqueFd stop_;
  StoreService service_;
  std::unordered_map<int, std::unique_ptr<Client>> clients_;
  Newcomers unproven_;
  Clock::time_point accept_again_{};  // not before
  bool listening_ = true;
  int complaints_ = 0;
  std::atomic<int> proven_ = 0;
  std::atomic<int> waiting_ = 0;
};

bool StoreServer::Loop::turn() {
  std::array<epoll_event, 256> events{};
  const int timeout = next_deadline().poll_milliseconds(std::chrono::hours(1));
  const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
  if (ready < 0 && errno != EINTR) throw_system("epoll_wait");
  for (int i = 0; i < ready; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    if (fd == stop_.get()) return false;
    if (fd == listener_->fd()) {
      accept_clients();
    } else {
      serve(fd);
    }
  }
  drop_late();
  update_listening();
  publish();
  return true;
}

void StoreServer::Loop::accept_clients() {
  try {
    for (int i = 0; i < accepts_per_turn; ++i) {
      if (clients_.size() >= static_cast<std::size_t>(options_.max_clients)) return;
      auto socket = listener_->try_accept();
      if (!socket) return;
      admit(std::move(*socket));
    }
  } catch (const std::exception& error) {
    complain(error.what());
    accept_again_ = Clock::now() + pause_when_refused;
  }
}

void StoreServer::Loop::admit(Socket socket) {
  const int fd = socket.fd();
  try {
    const std::string source = socket.source();
    auto client = std::make_unique<Client>(
        Client{StoreConnection(std::move(socket), options_.trust, destination_, service_.traffic()), 0});
    client->interest = client->connection.interest();
    control(EPOLL_CTL_ADD, fd, client->interest);
    clients_.emplace(fd, std::move(client));
    if (const auto gone = unproven_.add(fd, source)) drop(*gone);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::peer_lost) complain(error.what());
  }
}

void StoreServer::Loop::serve(int fd) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;  // dropped earlier in this turn
  Client& client = *found->second;
  StoreConnection& connection = client.connection;
  try {
    const auto request = connection.advance();
    if (connection.proven() && unproven_.remove(fd)) {
      client.is_counted = true;
      ++proven_;
    }
    if (request) {
      for (const int touched : service_.answer(connection, *request)) settle(touched);
    } else {
      settle(fd);
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::corrupt_data) complain(connection.peer() + ": " + error.what());
    if (error.code() != ErrorCode::corrupt_data && error.code() != ErrorCode::peer_lost)
      complain(error.what());
    if (error.code() != ErrorCode::corrupt_data || !connection.proven()) return drop(fd);
    connection.refuse_and_close(error.what());
    settle(fd);
  } catch (const std::exception& error) {  // no memory for this request
    complain(connection.peer() + ": " + error.what());
    drop(fd);
  }
}

void StoreServer::Loop::settle(int fd) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  Client& client = *found->second;
  client.connection.flush();
  if (client.connection.finished()) return drop(fd);
  const std::uint32_t interest = client.connection.interest();
  if (interest == client.interest) return;
  client.interest = interest;
  control(EPOLL_CTL_MOD, fd, interest);
}

void StoreServer::Loop::drop(int fd) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  Client& client = *found->second;
  unproven_.remove(fd);
  if (client.is_counted) --proven_;
  const auto touched = service_.forget(client.connection);
  clients_.erase(found);
  for (const int other : touched) settle(other);
}

void StoreServer::Loop::drop_late() {
  while (const auto late = unproven_.take_late()) {
    log::debug("store: " + clients_.at(*late)->connection.peer() + " did not prove the job secret in time");
    drop(*late);
  }
}

Deadline StoreServer::Loop::next_deadline() const {
  Deadline next = unproven_.next_deadline();
  if (accept_again_ > Clock::now()) next = next.earlier_of(Deadline::at(accept_again_));
  return next;
}

// Whom we have no room for waits in the kernel's backlog.
void StoreServer::Loop::update_listening() {
  const bool has_room = clients_.size() < static_cast<std::size_t>(options_.max_clients);
  const bool should_listen = has_room && accept_again_ <= Clock::now();
  if (should_listen == listening_) return;
  listening_ = should_listen;
  control(EPOLL_CTL_MOD, listener_->fd(), should_listen ? EPOLLIN : 0U);
}

void StoreServer::Loop::publish() { waiting_ = static_cast<int>(service_.waiting()); }

void StoreServer::Loop::complain(const std::string& text) {
  ++complaints_;
  const std::string line = "store at " + listener_->endpoint().to_string() + ": " + text;
  if (complaints_ > most_complaints) return log::debug(line);
  log::warning(complaints_ == most_complaints ? line + " (further ones are not reported)" : line);
}

void StoreServer::Loop::control(int operation, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), operation, fd, &event) != 0) throw_system("epoll_ctl");
}

StoreServer::StoreServer(Listener listener, StoreServerOptions options) : endpoint_(listener.endpoint()) {
  require_usable(options.trust, endpoint_.kind);
  loop_ = std::make_unique<Loop>(std::move(listener), std::move(options));
  thread_ = start_thread("lockstep-store", [loop = loop_.get()] { loop->run(); });
}

StoreServer::~StoreServer() {
  loop_->stop();
  thread_.join();
}

int StoreServer::clients() const { return loop_->clients(); }

int StoreServer::waiting() const { return loop_->waiting(); }

}  // namespace lockstep
