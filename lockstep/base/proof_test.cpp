#include "lockstep/base/proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/waits_test.h"

namespace lockstep {
namespace {

using test::error_of;
using test::soon;
using testing::HasSubstr;

const Destination here{.kind = Destination::Kind::door,
                       .job = "port-29500",
                       .group = "world",
                       .rank = 2,
                       .endpoint = "tcp:10.0.0.1:4711"};
constexpr Claim me{.rank = 7, .use = 1};

// Both sides at once; what each of them threw, if anything.
struct Outcome {
  std::optional<Error> client;
  std::optional<Error> server;
  Claim claim;
};

std::pair<Socket, Socket> connected(bool over_tcp) {
  if (!over_tcp) return Socket::pair();
  Listener listener = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
  Socket client = Socket::connect(listener.endpoint(), soon());
  return {std::move(client), listener.accept(soon())};
}

Outcome prove(const Trust& client_trust, const Trust& server_trust, bool over_tcp = false,
              const Destination& meant = here, const Destination& real = here) {
  auto [client, server] = connected(over_tcp);
  Outcome outcome;
  const auto record = [](std::optional<Error>& into, Socket& socket, const auto& half) {
    try {
      half();
      const std::array<std::byte, 1> hello{std::byte{1}};
      socket.send_all(hello, soon());
      std::array<std::byte, 1> answer{};
      socket.receive_all(answer, soon());
    } catch (const Error& error) {
      into = error;
      socket.shutdown();
    }
  };
  std::thread other([&, &socket = server] {
    record(outcome.server, socket,
           [&] { outcome.claim = prove_as_server(socket, server_trust, real, soon()); });
  });
  record(outcome.client, client,
         [&, &socket = client] { prove_as_client(socket, client_trust, meant, me, soon()); });
  other.join();
  return outcome;
}

void expect_wrong_secret(const std::optional<Error>& error) {
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error->what(), HasSubstr("wrong secret"));
  EXPECT_THAT(error->what(), HasSubstr("LOCKSTEP_SECRET_FILE"));
}

void expect_wrong_secret(const Outcome& outcome) {
  expect_wrong_secret(outcome.client);
  expect_wrong_secret(outcome.server);
}

TEST(Proof, LetsInWhoHoldsTheSecretAndSaysWhoItIs) {
  const Trust trust{.secret = Secret::random()};
  for (const bool over_tcp : {false, true}) {
    const Outcome outcome = prove(trust, trust, over_tcp);
    EXPECT_FALSE(outcome.client) << outcome.client->what();
    EXPECT_FALSE(outcome.server) << outcome.server->what();
    EXPECT_EQ(outcome.claim, me);
  }
}

TEST(Proof, TellsBothSidesOfAWrongSecret) {
  const Trust ours{.secret = Secret::random()};
  const Trust theirs{.secret = Secret::random()};
  for (const bool over_tcp : {false, true}) expect_wrong_secret(prove(theirs, ours, over_tcp));
}

TEST(Proof, TellsBothSidesThatOnlyOneHasASecret) {
  const Trust with{.secret = Secret::random()};
  const Trust without{.tcp_without_secret = true};
  for (const bool over_tcp : {false, true}) {
    expect_wrong_secret(prove(with, without, over_tcp));
    expect_wrong_secret(prove(without, with, over_tcp));
  }
}

TEST(Proof, NeedsNoSecretBetweenProcessesOfOneUserOnOneHost) {
  const Outcome outcome = prove({}, {});
  EXPECT_FALSE(outcome.client);
  EXPECT_FALSE(outcome.server);
}

TEST(Proof, OverTcpWithoutSecretHasToBeAskedFor) {
  const Outcome refused = prove({}, {}, true);
  for (const auto& error : {refused.client, refused.server}) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error->what(), HasSubstr("needs a job secret"));
  }
  const Trust insecure{.tcp_without_secret = true};
  const Outcome allowed = prove(insecure, insecure, true);
  EXPECT_FALSE(allowed.client);
  EXPECT_FALSE(allowed.server);
}

std::vector<Destination> other_destinations() {
  std::vector<Destination> others(7, here);
  others[0].kind = Destination::Kind::region;
  others[1].job = "port-29501";
  others[2].group = "world/0,1";
  others[3].rank = 3;
  others[4].endpoint = "tcp:10.0.0.1:4712";
  others[5].endpoint = "tcp:10.0.0.2:4711";
  others[6].job = "port-29500w";  // no byte moves from one text to the next unnoticed
  others[6].group = "orld";
  return others;
}

TEST(Proof, CoversAllOfWhatItIsFor) {
  const Trust trust{.secret = Secret::random()};
  for (const Destination& other : other_destinations()) {
    SCOPED_TRACE(other.to_string());
    const Outcome outcome = prove(trust, trust, false, here, other);
    expect_wrong_secret(outcome);
    EXPECT_THAT(outcome.client->what(), HasSubstr(here.to_string())) << "what was meant";
  }
}

// One exchange message by message, as whoever stands in between sees it.
class Between : public testing::Test {
 protected:
  static proof::Answer answer_of(ServerProof& server, const proof::Opening& opening) {
    EXPECT_TRUE(server.hear(std::span(opening).first(server.awaited())).empty());
    const auto said = server.hear(std::span(opening).last(server.awaited()));
    proof::Answer answer{};
    EXPECT_LE(said.size(), answer.size());
    std::ranges::copy(said, answer.begin());
    return answer;
  }
  ServerProof new_server(const Destination& destination = here) { return {socket_, trust_, destination}; }
  ClientProof new_client() { return {trust_, here, me}; }

  const Trust trust_{.secret = Secret::random()};
  Socket socket_ = Socket::pair().first;
};

TEST_F(Between, WhoPassesAllOnUnchangedLetsThemMeet) {
  ServerProof server = new_server();
  ClientProof client = new_client();
  const auto confirmation = client.hear(answer_of(server, client.opening()));
  EXPECT_TRUE(client.server_is_right());
  (void)server.hear(confirmation);
  EXPECT_TRUE(server.is_proven());
  EXPECT_EQ(server.claim(), me);
}

TEST_F(Between, ARelayToAnotherDestinationProvesNothingOnEitherSide) {
  for (const Destination& other : other_destinations()) {
    ServerProof server = new_server(other);
    ClientProof client = new_client();
    const auto confirmation = client.hear(answer_of(server, client.opening()));
    EXPECT_FALSE(client.server_is_right()) << other.to_string();
    EXPECT_EQ(confirmation, proof::Confirmation{}) << "the server learns nothing";
    (void)server.hear(confirmation);
    EXPECT_FALSE(server.is_proven()) << other.to_string();
    EXPECT_TRUE(server.is_over());
  }
}

TEST_F(Between, AChangedByteProvesNothing) {
  for (std::size_t changed = 4; changed < sizeof(proof::Opening); changed += 3) {  // claim, then share
    ServerProof server = new_server();
    ClientProof client = new_client();
    proof::Opening opening = client.opening();
    opening[changed] ^= std::byte{1};
    (void)client.hear(answer_of(server, opening));
    EXPECT_FALSE(client.server_is_right()) << changed;
  }
  for (std::size_t changed = 0; changed < sizeof(proof::Answer); changed += 7) {
    ServerProof server = new_server();
    ClientProof client = new_client();
    proof::Answer answer = answer_of(server, client.opening());
    answer[changed] ^= std::byte{1};
    EXPECT_EQ(client.hear(answer), proof::Confirmation{}) << changed;
  }
  for (std::size_t changed = 0; changed < sizeof(proof::Confirmation); ++changed) {
    ServerProof server = new_server();
    ClientProof client = new_client();
    proof::Confirmation confirmation = client.hear(answer_of(server, client.opening()));
    confirmation[changed] ^= std::byte{1};
    (void)server.hear(confirmation);
    EXPECT_FALSE(server.is_proven()) << changed;
  }
}

TEST_F(Between, AReplayProvesNothing) {
  ServerProof first = new_server();
  ClientProof client = new_client();
  const auto answer = answer_of(first, client.opening());
  const auto confirmation = client.hear(answer);
  (void)first.hear(confirmation);
  ASSERT_TRUE(first.is_proven());

  ServerProof second = new_server();
  EXPECT_NE(answer_of(second, client.opening()), answer);
  (void)second.hear(confirmation);
  EXPECT_FALSE(second.is_proven()) << "to a server";
  ClientProof later = new_client();
  (void)later.hear(answer);
  EXPECT_FALSE(later.server_is_right()) << "to a client";
}

TEST_F(Between, AReflectionProvesNothing) {
  ClientProof client = new_client();
  proof::Answer reflected{};
  std::ranges::copy(std::span(client.opening()).last<sizeof(spake2::Share)>(), reflected.begin());
  EXPECT_EQ(client.hear(reflected), proof::Confirmation{});
  EXPECT_FALSE(client.server_is_right());

  ServerProof server = new_server();
  const auto answer = answer_of(server, client.opening());
  (void)server.hear(std::span(answer).last<sizeof(proof::Confirmation)>());
  EXPECT_FALSE(server.is_proven()) << "a server's confirmation is no client's";
}

// An impostor that waits for a client gets its share, which fits every secret, and zeros.
TEST_F(Between, AServerThatDoesNotKnowTheSecretIsToldNothingToGuessOn) {
  const Trust guess{.secret = Secret::random()};
  ServerProof impostor(socket_, guess, here);
  ClientProof client = new_client();
  EXPECT_EQ(client.hear(answer_of(impostor, client.opening())), proof::Confirmation{});
}

TEST(Proof, OfAServerThatKnowsNothingIsRefused) {
  for (const std::byte fake : {std::byte{0}, std::byte{1}}) {
    auto [client, server] = Socket::pair();
    std::thread impostor([&, &socket = server] {
      socket.send_all(ServerProof::greeting(), soon());
      proof::Opening opening{};
      socket.receive_all(opening, soon());
      proof::Answer answer{};
      answer.fill(fake);
      socket.send_all(answer, soon());
      proof::Confirmation confirmation{};
      socket.receive_all(confirmation, soon());
      EXPECT_EQ(confirmation, proof::Confirmation{});
    });
    expect_wrong_secret(error_of(
        [&, &socket = client] { prove_as_client(socket, {.secret = Secret::random()}, here, me, soon()); }));
    impostor.join();
  }
}

// Versions before began with 32 random bytes of the server's, to which 64 were the answer.
TEST(Proof, SaysThatAServerIsOfAnotherVersion) {
  auto [client, server] = Socket::pair();
  server.send_all(std::vector<std::byte>(32, std::byte{0x5a}), soon());
  const Error error = error_of(
      [&, &socket = client] { prove_as_client(socket, {.secret = Secret::random()}, here, me, soon()); });
  EXPECT_EQ(error.code(), ErrorCode::corrupt_data);
  EXPECT_THAT(error.what(), HasSubstr("another version of Lockstep"));
}

TEST(Proof, RefusesAClientOfAnotherVersionAtOnce) {
  auto [client, server] = Socket::pair();
  const Trust trust{.secret = Secret::random()};
  client.send_all(std::vector<std::byte>(64, std::byte{0x5a}), soon());
  ServerProof proof(server, trust, here);
  std::vector<std::byte> heard(proof.awaited());
  server.receive_all(heard, soon());
  const auto refusal = proof.hear(heard);
  EXPECT_EQ(refusal.size(), 32U) << "what that version reads";
  EXPECT_TRUE(std::ranges::all_of(refusal, [](std::byte byte) { return byte == std::byte{0}; }));
  EXPECT_TRUE(proof.is_over());
  EXPECT_FALSE(proof.is_proven());
  EXPECT_THAT(proof.refusal(), HasSubstr("another version of Lockstep"));
}

TEST(Proof, StopsAtTheDeadline) {
  auto [client, server] = Socket::pair();
  const auto now = [] { return Deadline::after(std::chrono::milliseconds(20)); };
  const Trust trust{.secret = Secret::random()};
  EXPECT_EQ(error_of([&, &socket = client] { prove_as_client(socket, trust, here, me, now()); }).code(),
            ErrorCode::timeout);
  EXPECT_EQ(error_of([&, &socket = server] { (void)prove_as_server(socket, trust, here, now()); }).code(),
            ErrorCode::timeout);
}

}  // namespace
}  // namespace lockstep
