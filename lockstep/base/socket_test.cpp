#include "lockstep/base/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/socket_traffic.h"
#include "lockstep/base/waits_test.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using test::error_of;
using test::soon;
using testing::HasSubstr;
using testing::StartsWith;

Deadline now() { return Deadline::after(milliseconds(20)); }

Endpoint fresh_name() {
  static std::atomic<int> next = 0;
  return Endpoint::unix_abstract("lockstep-socket-test-" + std::to_string(::getpid()) + "-" +
                                 std::to_string(++next));
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string receive_text(Socket& socket, std::size_t bytes, Deadline deadline = soon()) {
  std::string text(bytes, '\0');
  socket.receive_all(std::as_writable_bytes(std::span(text)), deadline);
  return text;
}

TEST(Endpoint, ReadsBackWhatItPrints) {
  for (const char* text : {"unix:@job 7", "tcp:127.0.0.1:29500", "tcp:[::1]:0", "tcp:node-3.cluster:65535"}) {
    EXPECT_EQ(Endpoint::parse(text).to_string(), text);
  }
  EXPECT_EQ(Endpoint::parse("tcp:[::1]:80"), Endpoint::tcp("::1", 80));
}

TEST(Endpoint, RefusesEverythingElse) {
  const std::vector<std::string> wrong = {"",
                                          "127.0.0.1:1",
                                          "unix:name",
                                          "unix:@",
                                          "tcp:",
                                          "tcp:host",
                                          "tcp::1",
                                          "tcp:host:",
                                          "tcp:host:x",
                                          "tcp:::1:80",
                                          "tcp:h:65536",
                                          "tcp:h:-1",
                                          "tcp:[]:80",
                                          "tcp:[[]:80",
                                          "tcp:[[::1]]:80",
                                          "tcp:[a]b]:80",
                                          "unix:@" + std::string(108, 'a')};
  for (const std::string& text : wrong) {
    const Error error = error_of([&] { Endpoint::parse(text); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << text;
    EXPECT_THAT(error.what(), HasSubstr("endpoint")) << text;
  }
  EXPECT_NO_THROW(Endpoint::parse("unix:@" + std::string(107, 'a')));
}

class Stream : public testing::TestWithParam<const char*> {
 protected:
  Stream()
      : listener_(
            Listener::bind(GetParam() == std::string("unix") ? fresh_name() : Endpoint::parse(GetParam()))) {
    client_ = Socket::connect(listener_.endpoint(), soon());
    server_ = listener_.accept(soon());
  }

  Listener listener_;
  Socket client_;
  Socket server_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, Stream,
                         testing::Values("unix", "tcp:127.0.0.1:0", "tcp:[::1]:0", "tcp:localhost:0"),
                         [](const auto& kind) { return "Kind" + std::to_string(kind.index); });

TEST_P(Stream, CarriesMoreThanTheKernelHolds) {
  std::string sent(6 << 20, '\0');
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 7 + (i >> 13));
  std::jthread sender([&] { client_.send_all(bytes_of(sent), soon()); });
  EXPECT_TRUE(receive_text(server_, sent.size()) == sent);
}

TEST_P(Stream, EndsAsPeerLost) {
  client_.send_all(bytes_of("abc"), soon());
  client_ = Socket();
  const Error error = error_of([&] { receive_text(server_, 5); });
  EXPECT_EQ(error.code(), ErrorCode::peer_lost);
  EXPECT_THAT(error.what(), HasSubstr("connection closed after 3 of 5 bytes"));
  EXPECT_FALSE(error.peer().has_value());
}

TEST_P(Stream, SendingToNobodyIsPeerLostAndNoSignal) {
  server_ = Socket();
  const std::string much(8 << 20, 'x');
  EXPECT_EQ(error_of([&] { client_.send_all(bytes_of(much), soon()); }).code(), ErrorCode::peer_lost);
}

TEST_P(Stream, StopsAtTheDeadline) {
  const Error late_receive = error_of([&] { receive_text(server_, 4, now()); });
  EXPECT_EQ(late_receive.code(), ErrorCode::timeout);
  EXPECT_THAT(late_receive.what(), HasSubstr("0 of 4 bytes received"));
  const std::string much(16 << 20, 'x');
  EXPECT_EQ(error_of([&] { client_.send_all(bytes_of(much), now()); }).code(), ErrorCode::timeout);
}

TEST_P(Stream, TriesWithoutWaiting) {
  std::vector<std::byte> room(std::size_t{1} << 20);
  EXPECT_EQ(server_.try_receive(room), std::nullopt);
  EXPECT_EQ(client_.try_send(bytes_of("abc")), 3U);
  EXPECT_EQ(receive_text(server_, 3), "abc");
  const std::string much(1 << 20, 'x');
  while (client_.try_send(bytes_of(much))) {
  }
  client_ = Socket();
  while (server_.try_receive(room) != 0U) {
  }
}

TEST_P(Stream, ShutdownWakesWhoWaits) {
  std::jthread waker([&] { server_.shutdown(); });
  EXPECT_EQ(error_of([&] { receive_text(server_, 1); }).code(), ErrorCode::peer_lost);
}

TEST_P(Stream, NeverLeaksIntoAChildAndNeverBlocks) {
  for (const int fd : {client_.fd(), server_.fd(), listener_.fd()}) {
    EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    EXPECT_EQ(::fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
  }
}

TEST_P(Stream, NamesBothSides) {
  EXPECT_EQ(client_.peer(), listener_.endpoint().to_string());
  if (client_.is_unix()) {
    EXPECT_EQ(server_.local(), listener_.endpoint().to_string());
    EXPECT_EQ(server_.peer(), listener_.endpoint().to_string() + " (pid " + std::to_string(::getpid()) + ")");
  } else {
    EXPECT_EQ(server_.peer(), client_.local());
    EXPECT_EQ(Endpoint::parse(server_.local()).port, listener_.endpoint().port);
  }
}

TEST_P(Stream, HasOneListenerOnly) {
  const Error error = error_of([&] { Listener::bind(listener_.endpoint()); });
  EXPECT_EQ(error.code(), ErrorCode::system);
  EXPECT_THAT(error.what(), HasSubstr("is already in use"));
  if (!client_.is_unix()) {
    EXPECT_THAT(error.what(), StartsWith("port " + std::to_string(listener_.endpoint().port) + " on "));
    EXPECT_THAT(error.what(), HasSubstr("MASTER_PORT"));
  }
}

TEST(Socket, TcpSendsSmallMessagesAtOnce) {
  const Listener listener = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
  const Socket client = Socket::connect(listener.endpoint(), soon());
  int value = 0;
  socklen_t bytes = sizeof(value);
  ASSERT_EQ(::getsockopt(client.fd(), IPPROTO_TCP, TCP_NODELAY, &value, &bytes), 0);
  EXPECT_EQ(value, 1);
}

TEST(Socket, TcpTellsWhatItHasCarried) {
  Listener listener = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
  Socket there = Socket::connect(listener.endpoint(), soon());
  Socket here = listener.accept(soon());
  const std::string text(std::size_t{64} << 20, 'x');  // the kernel counts time in ticks
  std::thread reader([&] { (void)receive_text(here, text.size()); });
  there.send_all(bytes_of(text), soon());
  reader.join();
  base::SocketTraffic traffic;
  for (const Deadline end = soon(); traffic.sent_bytes < text.size() && !end.expired();)
    traffic = base::traffic_of(there.fd());
  EXPECT_EQ(traffic.sent_bytes, text.size());
  EXPECT_GT(traffic.busy_ns, 0U);
  EXPECT_EQ(base::traffic_of(here.fd()).sent_bytes, 0U);
  EXPECT_EQ(base::traffic_of(Socket::pair().first.fd()).sent_bytes, 0U);
}

TEST(Socket, WaitsForAServerThatComesLater) {
  for (const Endpoint& endpoint : {fresh_name(), Listener::bind(Endpoint::tcp("127.0.0.1", 0)).endpoint()}) {
    EXPECT_EQ(error_of([&] { Socket::connect_once(endpoint, soon()); }).code(), ErrorCode::peer_lost);
    std::jthread server([&] { Listener::bind(endpoint).accept(soon()).send_all(bytes_of("hi"), soon()); });
    Socket client = Socket::connect(endpoint, soon());
    EXPECT_EQ(receive_text(client, 2), "hi");
  }
}

/// Of this thread's own network, which leads nowhere until it has one.
void give_address(const std::string& address) {
  const UniqueFd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP;
  ASSERT_EQ(::ioctl(any.get(), SIOCSIFFLAGS, &loopback), 0) << std::strerror(errno);
  sockaddr_in number{};
  number.sin_family = AF_INET;
  ASSERT_EQ(::inet_pton(AF_INET, address.c_str(), &number.sin_addr), 1);
  std::memcpy(&loopback.ifr_addr, &number, sizeof(number));
  ASSERT_EQ(::ioctl(any.get(), SIOCSIFADDR, &loopback), 0) << std::strerror(errno);
}

TEST(Socket, TellsANetworkThatLeadsNowhereFromNobodyThere) {
  bool has_network = false;
  std::jthread([&] {
    if (::unshare(CLONE_NEWNET) != 0) return;
    has_network = true;
    Listener listener = Listener::bind(Endpoint::tcp("0.0.0.0", 0));
    const std::string address = "10.9.9.9";
    const Endpoint server = Endpoint::tcp(address, listener.endpoint().port);
    const Error error = error_of([&] { Socket::connect_once(server, soon()); });
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_THAT(error.what(), HasSubstr("Network is unreachable"));
    EXPECT_EQ(error_of([&] { Socket::connect_through_cuts(server, now()); }).code(), ErrorCode::timeout);
    int attempts = 0;
    const auto comes_at_last = [&] {
      if (++attempts == 3) give_address(address);
    };
    EXPECT_TRUE(Socket::connect_through_cuts(server, soon(), comes_at_last));
    EXPECT_EQ(attempts, 3);
    const Endpoint nobody = Endpoint::tcp(address, 9);
    EXPECT_EQ(error_of([&] { Socket::connect_through_cuts(nobody, soon()); }).code(), ErrorCode::peer_lost);
  }).join();
  if (!has_network) GTEST_SKIP() << "a network of its own takes CAP_SYS_ADMIN";
}

TEST(Socket, SaysWhyNobodyWasThere) {
  const Endpoint nobody = Listener::bind(Endpoint::tcp("127.0.0.1", 0)).endpoint();
  const Error error = error_of([&] { Socket::connect(nobody, now()); });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), HasSubstr(nobody.to_string()));
  EXPECT_THAT(error.what(), HasSubstr("Connection refused"));
}

TEST(Socket, WaitsWhileAUnixBacklogIsFull) {
  Listener listener = Listener::bind(fresh_name());
  ASSERT_EQ(::listen(listener.fd(), 0), 0);
  const Socket first = Socket::connect(listener.endpoint(), soon());
  EXPECT_EQ(error_of([&] { Socket::connect_once(listener.endpoint(), now()); }).code(), ErrorCode::timeout);
  std::jthread server([&] { (void)listener.accept(soon()); });
  EXPECT_TRUE(Socket::connect_once(listener.endpoint(), soon()));
}

// An unused port that Linux hands out to connecting sockets: an even one of the ephemeral range.
Endpoint even_port() {
  for (;;) {
    const std::uint16_t odd_or_even = Listener::bind(Endpoint::tcp("127.0.0.1", 0)).endpoint().port;
    try {
      return Listener::bind(Endpoint::tcp("127.0.0.1", static_cast<std::uint16_t>(odd_or_even & ~1U)))
          .endpoint();
    } catch (const Error&) {  // taken: another one
    }
  }
}

TEST(Socket, DoesNotTakeItselfForAServer) {
  const Endpoint nobody = even_port();
  for (int i = 0; i < 15000; ++i) {  // if it could meet itself, it most likely would
    ASSERT_EQ(error_of([&] { Socket::connect_once(nobody, soon()); }).code(), ErrorCode::peer_lost);
  }
}

TEST(Socket, SurvivesSignalsWhileItWaits) {
  struct sigaction quiet {};
  struct sigaction before {};
  static std::atomic<int> handled = 0;
  quiet.sa_handler = [](int) { ++handled; };  // no SA_RESTART: every wait sees EINTR
  ASSERT_EQ(::sigaction(SIGUSR1, &quiet, &before), 0);
  auto [left, right] = Socket::pair();
  std::string received;
  std::thread receiver([&, &socket = right] { received = receive_text(socket, 2); });
  for (const Deadline limit = soon(); handled < 50 && !limit.expired(); std::this_thread::yield()) {
    ::pthread_kill(receiver.native_handle(), SIGUSR1);
  }
  left.send_all(bytes_of("ok"), soon());
  receiver.join();
  EXPECT_EQ(received, "ok");
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(Listener, NamesAnAddressThatIsNotOurs) {
  const Error error = error_of([] { Listener::bind(Endpoint::tcp("192.0.2.1", 0)); });
  EXPECT_EQ(error.code(), ErrorCode::system);
  EXPECT_THAT(error.what(), HasSubstr("192.0.2.1 is not an address of this host"));
}

TEST(Listener, GivesUpAtTheDeadline) {
  Listener listener = Listener::bind(fresh_name());
  EXPECT_FALSE(listener.try_accept().has_value());
  EXPECT_EQ(error_of([&] { (void)listener.accept(now()); }).code(), ErrorCode::timeout);
}

}  // namespace
}  // namespace lockstep
