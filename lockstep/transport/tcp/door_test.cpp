// Strangers at the door, and ranks that find nobody there.
#include "lockstep/transport/tcp/door.h"

#include "lockstep/transport/tcp/tcp_ranks_test.h"

namespace lockstep::tcp {
namespace {

using testing::HasSubstr;

constexpr int me = 1;
constexpr std::uint64_t my_group = 4711;

class AtTheDoor : public testing::Test {
 protected:
  static DoorOptions options(const Trust& trust) {
    return {.address = "127.0.0.1", .trust = trust, .rank = me, .ranks = 3, .group = my_group};
  }
  Socket connect() const { return Socket::connect(door_.endpoint(), soon()); }
  Socket connect_proven() const {
    Socket socket = connect();
    prove_as_client(socket, trust_, soon());
    return socket;
  }
  static Hello hello(int from) {
    return {.line = Line::collective, .from = from, .to = me, .group = my_group};
  }
  template <class Object>
  static void send(Socket& socket, const Object& object, std::size_t bytes = sizeof(Object)) {
    socket.send_all(std::as_bytes(std::span(&object, 1)).first(bytes), soon());
  }
  // Nothing but an end comes, be it a reset.
  static void expect_closed(Socket& socket) {
    std::byte byte{};
    EXPECT_EQ(error_of([&] { socket.receive_all(std::span(&byte, 1), soon()); }).code(),
              ErrorCode::peer_lost);
  }
  std::vector<Door::Arrival> next_arrivals(Door& door) {
    std::vector<Door::Arrival> arrivals;
    EXPECT_TRUE(eventually([&] { return !(arrivals = door.take()).empty(); }));
    return arrivals;
  }
  void expect_that_a_rank_gets_in(Door& door, int from) {
    Socket socket = Socket::connect(door.endpoint(), soon());
    prove_as_client(socket, trust_, soon());
    send(socket, hello(from));
    const auto arrivals = next_arrivals(door);
    ASSERT_EQ(arrivals.size(), 1U);
    EXPECT_EQ(arrivals[0].rank, from);
    EXPECT_EQ(arrivals[0].line, Line::collective);
  }

  const Trust trust_{.secret = Secret::random()};
  Bell bell_;
  Door door_{options(trust_), bell_};
};

TEST_F(AtTheDoor, ARankGetsInAndTheBellRings) {
  EXPECT_FALSE(bell_.take());
  expect_that_a_rank_gets_in(door_, 2);
  EXPECT_TRUE(eventually([&] { return bell_.take(); }));
  EXPECT_TRUE(eventually([&] { return !door_.has_arriving(); }));
}

TEST_F(AtTheDoor, GarbageInsteadOfAProofIsNotParsed) {
  for (const std::size_t bytes : {64U, 65U, 5000U}) {
    Socket stranger = connect();
    std::vector<std::byte> challenge(ServerProof::challenge_bytes);
    stranger.receive_all(challenge, soon());
    try {
      stranger.send_all(noise(bytes, 3), soon());
      std::vector<std::byte> refusal(ServerProof::reply_bytes);
      stranger.receive_all(refusal, soon());
      EXPECT_EQ(refusal, std::vector<std::byte>(ServerProof::reply_bytes));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_lost) << "closed on unread bytes";
    }
    expect_closed(stranger);
  }
  expect_that_a_rank_gets_in(door_, 0);
}

TEST_F(AtTheDoor, AWrongSecretIsSaidSo) {
  Socket stranger = connect();
  const Trust other{.secret = Secret::random()};
  EXPECT_THAT(error_of([&] { prove_as_client(stranger, other, soon()); }).what(), HasSubstr("wrong secret"));
  expect_that_a_rank_gets_in(door_, 0);
}

TEST_F(AtTheDoor, AHelloThatDoesNotFitIsClosedAndNothingElse) {
  std::vector<Hello> wrong(8, hello(0));
  wrong[0].magic ^= 1;
  wrong[1].group ^= 1;
  wrong[2].to = 0;
  wrong[3].from = me;
  wrong[4].from = 3;
  wrong[5].from = -1;
  wrong[6].line = static_cast<Line>(3);
  wrong[7].line = static_cast<Line>(0xffffffffU);
  for (const Hello& each : wrong) {
    Socket socket = connect_proven();
    send(socket, each);
    expect_closed(socket);
  }
  EXPECT_TRUE(door_.take().empty());
  expect_that_a_rank_gets_in(door_, 0);
}

TEST_F(AtTheDoor, HalfAHelloHoldsNobodyUp) {
  Socket slow = connect_proven();
  send(slow, hello(0), sizeof(Hello) - 1);
  EXPECT_TRUE(eventually([&] { return door_.has_arriving(); }));
  expect_that_a_rank_gets_in(door_, 2);
  EXPECT_TRUE(door_.has_arriving());
  const Hello whole = hello(0);
  slow.send_all(std::as_bytes(std::span(&whole, 1)).last(1), soon());
  const auto arrivals = next_arrivals(door_);
  ASSERT_EQ(arrivals.size(), 1U);
  EXPECT_EQ(arrivals[0].rank, 0) << "slow is no crime";
}

TEST_F(AtTheDoor, WhoVanishesHalfwayIsForgotten) {
  Socket gone = connect_proven();
  send(gone, hello(0), 5);
  EXPECT_TRUE(eventually([&] { return door_.has_arriving(); }));
  gone = Socket();
  EXPECT_TRUE(eventually([&] { return !door_.has_arriving(); }));
}

TEST_F(AtTheDoor, TwoHundredIdleConnectionsHoldNobodyUp) {
  std::vector<Socket> idle(200);
  for (Socket& socket : idle) socket = connect();
  expect_that_a_rank_gets_in(door_, 2);
}

TEST_F(AtTheDoor, MoreIdleConnectionsThanThereIsRoomForAreThrownOutSooner) {
  DoorOptions small = options(trust_);
  small.max_guests = 4;
  small.patience = std::chrono::seconds(1);
  Door door(small, bell_);
  std::vector<Socket> idle(10);
  for (Socket& socket : idle) socket = Socket::connect(door.endpoint(), soon());
  expect_that_a_rank_gets_in(door, 2);
}

TEST_F(AtTheDoor, WhoSaysNothingForTooLongIsThrownOut) {
  DoorOptions hasty = options(trust_);
  hasty.patience = std::chrono::milliseconds(100);
  Door door(hasty, bell_);
  Socket silent = Socket::connect(door.endpoint(), soon());
  std::vector<std::byte> challenge(ServerProof::challenge_bytes);
  silent.receive_all(challenge, soon());
  expect_closed(silent);
}

TEST(Strangers, WithoutASecretThereIsNoTransport) {
  const Ranks ranks(2);
  EXPECT_THAT(error_of([&] { (void)ranks.make(0, {}); }).what(), HasSubstr("LOCKSTEP_SECRET_FILE"));
  EXPECT_NO_THROW((void)ranks.make(0, {.tcp_without_secret = true}));
}

TEST(Strangers, ARankWithAnotherSecretIsToldAndHarmsNobody) {
  Ranks ranks(3);
  const auto stranger = ranks.make(2, {.secret = Secret::random()});
  stranger->set_addresses(ranks.addresses);
  std::optional<Error> error;
  ASSERT_TRUE(eventually([&] {
    error = thrown_by([&] { (void)stranger->channel(0, Purpose::collective).try_write(noise(1, 1)); });
    return error.has_value();
  }));
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error->what(), HasSubstr("reaching rank 10: "));
  EXPECT_THAT(error->what(), HasSubstr("wrong secret"));
  ranks.move(1, 0, noise(1000, 1));
  EXPECT_TRUE(ranks[0].look().empty());
}

TEST(Strangers, ARankOfAnotherGroupIsRefused) {
  Ranks ranks(3);
  const auto stranger = ranks.make(2, ranks.trust, "another group");
  stranger->set_addresses(ranks.addresses);
  std::vector<PeerNews> news;
  ASSERT_TRUE(eventually([&] {
    (void)stranger->channel(0, Purpose::collective).try_write(noise(1, 1));
    return !(news = stranger->look()).empty();
  }));
  EXPECT_EQ(news.front().kind, PeerNews::Kind::died);
  ranks.move(1, 0, noise(1000, 1));
  EXPECT_TRUE(ranks[0].look().empty());
}

}  // namespace
}  // namespace lockstep::tcp
