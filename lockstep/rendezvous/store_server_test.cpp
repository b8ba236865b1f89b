// Clients that are slow, broken or hostile lose their own connection and nothing else.
#include "lockstep/rendezvous/store_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/waits_test.h"
#include "lockstep/rendezvous/store_wire.h"
#include "lockstep/rendezvous/tcp_store.h"

namespace lockstep {
namespace {

using store_wire::Operation;
using store_wire::Status;
using test::eventually;
using test::soon;
using testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string request(Operation operation, std::vector<std::string_view> fields) {
  return store_wire::encode_request(operation, fields);
}

// A header alone, which promises a body.
std::string header(int version, int kind, std::uint32_t body_bytes) {
  std::string text = {static_cast<char>(version), static_cast<char>(kind), 0, 0};
  for (int i = 0; i < 4; ++i) text.push_back(static_cast<char>(body_bytes >> (8 * i)));
  return text;
}

std::size_t descriptors_of_this_process() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

void expect_dropped(Socket& socket) {
  std::byte byte{};
  try {
    socket.receive_all(std::span(&byte, 1), soon());
    ADD_FAILURE() << "the server said more";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
  }
}

class HostileClient : public testing::TestWithParam<bool> {
 protected:
  Endpoint where() const {
    const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
    return GetParam() ? Endpoint::tcp("127.0.0.1", 0)
                      : Endpoint::unix_abstract("lockstep-" + std::to_string(::getpid()) + "-" + test);
  }
  TcpStore join() const { return {server_.endpoint(), soon(), {.trust = trust_}}; }
  Socket connect() const { return Socket::connect(server_.endpoint(), soon()); }
  Socket connect_proven() const {
    Socket socket = connect();
    prove_as_client(socket, trust_, store_wire::destination_of("", server_.endpoint()), {}, soon());
    return socket;
  }

  // Reads to the end of the connection. A reset is an end too.
  static std::string last_words(Socket& socket) {
    std::string words;
    try {
      for (char byte = 0;; words.push_back(byte)) {
        socket.receive_all(std::as_writable_bytes(std::span(&byte, 1)), soon());
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
    }
    return words;
  }

  const Trust trust_{.secret = Secret::random()};
  StoreServer server_{Listener::bind(where()), {.trust = trust_}};
};

INSTANTIATE_TEST_SUITE_P(Sockets, HostileClient, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "Tcp" : "Unix"; });

TEST_P(HostileClient, ThatSendsRequestsInsteadOfAProofIsNotHeard) {
  TcpStore good = join();
  Socket stranger = connect();
  std::string much;
  while (much.size() < 200) much += request(Operation::set, {"k", "evil"});
  stranger.send_all(bytes_of(much), soon());
  const std::string words = last_words(stranger);
  EXPECT_LE(words.size(), sizeof(proof::Greeting) + 32);
  EXPECT_EQ(words.find_last_not_of('\0'), words.empty() ? std::string::npos : 3U)
      << "a greeting, then at most zeros";
  EXPECT_EQ(good.try_get("k"), std::nullopt);
}

TEST_P(HostileClient, WithAHugeLengthIsRefused) {
  TcpStore good = join();
  const std::vector<std::pair<std::string, const char*>> lies = {
      {header(1, 1, 0xffffffffU), "body of 4294967295"},
      {header(1, 2, 5000), "body of 5000"},
      {header(1, 11, 1), "unknown operation 11"},
      {header(1, 0, 0), "unknown operation 0"},
      {header(2, 1, 8), "version 2, expected 1"},
      {header(1, 1, 8) + std::string("\xff\xff\xff\x7f....", 8), "longer than its message"},
      {header(1, 1, 3) + "abc", "half a field"},
      {header(1, 1, 0), "0 fields"},
      {request(Operation::set, {"k", "v", "w"}), "3 fields"},
      {request(Operation::bequeath, {"k"}), "1 fields"},
      {request(Operation::add, {"k", "12345"}), "number of 5 bytes"},
  };
  for (const auto& [bytes, reason] : lies) {
    Socket liar = connect_proven();
    liar.send_all(bytes_of(bytes), soon());
    const std::string words = last_words(liar);
    ASSERT_GT(words.size(), store_wire::header_bytes) << reason;
    EXPECT_EQ(words[1], static_cast<char>(Status::refused));
    EXPECT_THAT(words, HasSubstr(reason));
  }
  EXPECT_EQ(good.add("n", 1), 1);
  EXPECT_EQ(good.try_get("k"), std::nullopt);
}

TEST_P(HostileClient, ThatSendsHalfAMessageHoldsNobodyUp) {
  TcpStore good = join();
  std::vector<Socket> halves;
  const std::string whole = request(Operation::set, {"half", std::string(1000, 'v')});
  for (const std::size_t bytes : {1U, 7U, 8U, 11U, 500U}) {
    halves.push_back(connect_proven());
    halves.back().send_all(bytes_of(whole).first(bytes), soon());
  }
  EXPECT_EQ(good.add("n", 1), 1);
  EXPECT_EQ(good.try_get("half"), std::nullopt);
  halves.front().send_all(bytes_of(whole).subspan(1), soon());
  EXPECT_EQ(good.get("half", soon()).size(), 1000U) << "slow is no crime";
  halves.clear();
  ASSERT_TRUE(eventually([&] { return server_.clients() == 1; }));
  EXPECT_EQ(good.add("n", 1), 2);
}

TEST_P(HostileClient, ThatDoesNotReadItsRepliesIsNotReadEither) {
  TcpStore good = join();
  const std::size_t large = GetParam() ? 12 << 20 : 1 << 20;  // more than the kernel takes
  good.set("large", std::string(large, 'v'));
  Socket deaf = connect_proven();
  deaf.send_all(bytes_of(request(Operation::get, {"large"}) + request(Operation::set, {"next", "v"})),
                soon());
  for (int i = 0; i < 50; ++i) EXPECT_EQ(good.add("n", 1), i + 1);
  EXPECT_EQ(good.try_get("next"), std::nullopt);
  std::string reply(store_wire::header_bytes + large, '\0');
  deaf.receive_all(std::as_writable_bytes(std::span(reply)), soon());
  EXPECT_EQ(good.get("next", soon()), "v");
}

TEST_P(HostileClient, ThatTalksWhileItWaitsIsDropped) {
  TcpStore good = join();
  Socket impatient = connect_proven();
  impatient.send_all(bytes_of(request(Operation::get, {"never"})), soon());
  ASSERT_TRUE(eventually([&] { return server_.waiting() == 1; }));
  impatient.send_all(bytes_of("more"), soon());
  EXPECT_THAT(last_words(impatient), HasSubstr("before the last one was answered"));
  ASSERT_TRUE(eventually([&] { return server_.waiting() == 0; }));
  good.set("never", "v");
}

TEST_P(HostileClient, ThatVanishesWhileItWaitsIsForgotten) {
  TcpStore good = join();
  const std::vector<std::string_view> keys = {"a", "b", "a"};
  Socket first = connect_proven();
  Socket second = connect_proven();
  for (Socket* socket : {&first, &second}) {
    socket->send_all(bytes_of(store_wire::encode_request(Operation::wait, keys)), soon());
  }
  ASSERT_TRUE(eventually([&] { return server_.waiting() == 2; }));
  first = Socket();
  ASSERT_TRUE(eventually([&] { return server_.waiting() == 1; }));
  good.set("a", "");
  good.set("b", "");
  ASSERT_TRUE(eventually([&] { return server_.waiting() == 0; }));
  EXPECT_EQ(good.add("n", 1), 1);
}

TEST(StoreServer, DropsWhoDoesNotProveInTimeWhileOthersWork) {
  const Trust trust{.secret = Secret::random()};
  const StoreServer server(Listener::bind(Endpoint::tcp("127.0.0.1", 0)),
                           {.trust = trust, .unproven = {.patience = std::chrono::milliseconds(200)}});
  TcpStore good(server.endpoint(), soon(), {.trust = trust});
  Socket silent = Socket::connect(server.endpoint(), soon());
  Socket slow = Socket::connect(server.endpoint(), soon());
  proof::Greeting greeting{};
  silent.receive_all(greeting, soon());
  slow.receive_all(greeting, soon());
  const ClientProof half(trust, store_wire::destination_of("", server.endpoint()), {});
  for (std::size_t sent = 0; sent < sizeof(proof::Opening) - 1; ++sent) {
    if (sent > 0 && good.add("meanwhile", 1) == 0) break;
    try {
      slow.send_all(std::span(half.opening()).subspan(sent, 1), soon());
    } catch (const Error&) {  // dropped already, on a slow machine
      break;
    }
  }
  expect_dropped(silent);
  expect_dropped(slow);
  EXPECT_GT(good.add("n", 1), 0);
}

TEST(StoreServer, KeepsRoomForProvenClientsAmongManyStrangers) {
  const Trust trust{.secret = Secret::random()};
  const StoreServer server(Listener::bind(Endpoint::tcp("127.0.0.1", 0)),
                           {.trust = trust, .unproven = {.most = 4}});
  std::array<Socket, 12> strangers;
  for (Socket& stranger : strangers) stranger = Socket::connect(server.endpoint(), soon());
  TcpStore store(server.endpoint(), soon(), {.trust = trust});
  EXPECT_EQ(store.add("n", 1), 1);
}

// A source that opens as many connections as others do in a second, and keeps each as long as it may.
TEST(StoreServer, ServesRanksWhileOneSourceFloodsIt) {
  const Trust trust{.secret = Secret::random()};
  const StoreServer server(Listener::bind(Endpoint::tcp("127.0.0.1", 0)),
                           {.trust = trust, .unproven = {.most = 128}});
  const std::size_t before = descriptors_of_this_process();
  std::vector<Socket> flood;
  for (int i = 0; i < 512; ++i) {
    flood.push_back(Socket::connect(server.endpoint(), soon()));
    if (i % 64 != 0) continue;
    EXPECT_EQ(TcpStore(server.endpoint(), soon(), {.trust = trust}).add("n", 1), i / 64 + 1);
  }
  EXPECT_EQ(TcpStore(server.endpoint(), soon(), {.trust = trust}).add("n", 1), 9);
  const std::size_t held = descriptors_of_this_process() - before - flood.size();
  RecordProperty("connections_held", std::to_string(held));
  EXPECT_LE(held, 128 / 2 + 10U);
}

TEST(StoreServer, LeavesClientsBeyondItsLimitInTheBacklog) {
  const Trust trust{.secret = Secret::random()};
  const StoreServer server(Listener::bind(Endpoint::tcp("127.0.0.1", 0)), {.trust = trust, .max_clients = 1});
  std::optional<TcpStore> first(std::in_place, server.endpoint(), soon(), TcpStoreOptions{.trust = trust});
  EXPECT_THROW(TcpStore(server.endpoint(), Deadline::after(std::chrono::milliseconds(50)), {.trust = trust}),
               Error);
  first.reset();
  EXPECT_EQ(TcpStore(server.endpoint(), soon(), {.trust = trust}).add("n", 1), 1);
}

TEST(StoreServer, ListensOnTheChosenAddressOnly) {
  const Trust trust{.secret = Secret::random()};
  const StoreServer server(Listener::bind(Endpoint::tcp("127.0.0.1", 0)), {.trust = trust});
  const Endpoint elsewhere = Endpoint::tcp("127.0.0.2", server.endpoint().port);
  EXPECT_THROW(Socket::connect_once(elsewhere, soon()), Error);
}

TEST(StoreServer, EndsWithClientsInEveryState) {
  const Trust trust{.secret = Secret::random()};
  for (int i = 0; i < 10; ++i) {
    StoreServer server(Listener::bind(Endpoint::tcp("127.0.0.1", 0)), {.trust = trust});
    const Socket unproven = Socket::connect(server.endpoint(), soon());
    TcpStore store(server.endpoint(), soon(), {.trust = trust});
    store.set("k", "v");
  }
}

}  // namespace
}  // namespace lockstep
