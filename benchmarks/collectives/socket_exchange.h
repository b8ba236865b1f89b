// What a network gives: the bytes of an all_reduce, sent and received by plain sockets, both directions at once, with
// nothing added up. Each rank sends to the one with its number on the next host and receives from the one on the host
// before it, as many bytes as each host has to send and receive at the least, shared among its ranks.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>

#include "collectives/measure.h"

namespace bench {

class SocketExchange final : public Contestant {
 public:
  /// `share(port)`: what all ranks say, by rank. Ranks are numbered host by host, as many on each.
  SocketExchange(const Options& options, Session& session, const std::function<std::vector<int>(int)>& share)
      : session_(session),
        hosts_(static_cast<int>(options.addresses.size())),
        sent_(options.most_bytes() * 2),
        received_(options.most_bytes() * 2) {
    const int each = options.ranks / hosts_, mine = session.rank() / each;
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in here = address_of(options.addresses[static_cast<std::size_t>(mine)], 0);
    socklen_t length = sizeof(here);
    check(::bind(listener, reinterpret_cast<sockaddr*>(&here), length), "bind");
    check(::listen(listener, 1), "listen");
    check(::getsockname(listener, reinterpret_cast<sockaddr*>(&here), &length), "getsockname");
    const auto ports = share(ntohs(here.sin_port));
    const int next = (mine + 1) % hosts_;
    const int peer = next * each + session.rank() % each;
    sockaddr_in there =
        address_of(options.addresses[static_cast<std::size_t>(next)], ports[static_cast<std::size_t>(peer)]);
    to_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(::connect(to_, reinterpret_cast<sockaddr*>(&there), sizeof(there)), "connect");
    from_ = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    check(from_, "accept");
    ::close(listener);
    const int on = 1;
    ::setsockopt(to_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  ~SocketExchange() override {
    ::close(to_);
    ::close(from_);
  }
  std::byte* input() override { return sent_.span().data(); }
  std::byte* output(const Case&) override { return input(); }
  void barrier() override { session_.meet(); }
  bool has_result() const override { return false; }

  std::function<void()> prepare(const Case& what) override {
    if (what.op != Operation::all_reduce)
      throw std::invalid_argument("sockets exchange an all_reduce's bytes only");
    const auto hosts = static_cast<std::size_t>(hosts_), each = static_cast<std::size_t>(what.ranks) / hosts;
    const std::size_t bytes = 2 * (hosts - 1) * what.elements * size_of(what.dtype) / hosts / each;
    return [this, bytes] { exchange(bytes); };
  }

 private:
  static sockaddr_in address_of(const std::string& text, int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1)
      throw std::invalid_argument("'" + text + "' is no address");
    return address;
  }
  static void check(int result, const char* what) {
    if (result < 0) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
  }

  void exchange(std::size_t bytes) {
    constexpr int looks = 1000;
    std::size_t sent = 0, received = 0;
    int idle = 0;
    while (sent < bytes || received < bytes) {
      const std::size_t before = sent + received;
      if (sent < bytes)
        sent += moved(::send(to_, sent_.span().data() + sent, bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL));
      if (received < bytes)
        received += moved(::recv(from_, received_.span().data() + received, bytes - received, MSG_DONTWAIT));
      idle = sent + received == before ? idle + 1 : 0;
      if (idle < looks) continue;
      pollfd both[] = {{.fd = sent < bytes ? to_ : -1, .events = POLLOUT, .revents = 0},
                       {.fd = received < bytes ? from_ : -1, .events = POLLIN, .revents = 0}};
      ::poll(both, 2, 1000);
    }
  }
  static std::size_t moved(ssize_t count) {
    if (count > 0) return static_cast<std::size_t>(count);
    if (count == 0) throw std::runtime_error("the other side is gone");
    if (errno != EAGAIN && errno != EINTR) check(-1, "exchange");
    return 0;
  }

  Session& session_;
  int hosts_;
  Memory sent_, received_;
  int to_ = -1, from_ = -1;
};

}  // namespace bench
