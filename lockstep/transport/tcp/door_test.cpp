// Strangers at the door, and ranks that find nobody there.
#include "lockstep/transport/tcp/door.h"

#include <thread>

#include "lockstep/transport/tcp/tcp_ranks_test.h"

namespace lockstep::tcp {
namespace {

using testing::HasSubstr;

constexpr int me = 1;
constexpr const char* my_group = "world/1,2,3";

class AtTheDoor : public testing::Test {
 protected:
  static DoorOptions options(const Trust& trust) {
    return {.address = "127.0.0.1", .trust = trust, .job = "job", .group = my_group, .rank = me, .ranks = 3};
  }
  Socket connect() const { return Socket::connect(door_.endpoint(), soon()); }
  static Destination destination(const Door& door, const std::string& group = my_group, int rank = me) {
    return door_of("job", group, rank, door.endpoint());
  }
  void prove(Socket& socket, const Door& door, const Claim& claim) const {
    prove_as_client(socket, trust_, destination(door), claim, soon());
  }
  static Claim data_of(int rank) { return claim_of(rank, {Line::collective}); }
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
    prove(socket, door, data_of(from));
    const auto arrivals = next_arrivals(door);
    ASSERT_EQ(arrivals.size(), 1U);
    EXPECT_EQ(arrivals[0].rank, from);
    EXPECT_EQ(arrivals[0].strand.line, Line::collective);
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
    proof::Greeting greeting{};
    stranger.receive_all(greeting, soon());
    try {
      stranger.send_all(noise(bytes, 3), soon());
      std::vector<std::byte> refusal(32);
      stranger.receive_all(refusal, soon());
      EXPECT_EQ(refusal, std::vector<std::byte>(32));
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
  EXPECT_THAT(
      error_of([&] { prove_as_client(stranger, other, destination(door_), data_of(0), soon()); }).what(),
      HasSubstr("wrong secret"));
  expect_that_a_rank_gets_in(door_, 0);
}

TEST_F(AtTheDoor, WhoIsNoOtherRankOfTheGroupIsTurnedAway) {
  std::vector<Claim> wrong(5, data_of(0));
  wrong[0].rank = me;
  wrong[1].rank = 3;
  wrong[2].rank = -1;
  wrong[3].use = 3;
  wrong[4].use = 0xffffffffU;
  for (const Claim& each : wrong) {
    Socket socket = connect();
    EXPECT_THAT(error_of([&] { prove(socket, door_, each); }).what(), HasSubstr("turned away"));
    expect_closed(socket);
  }
  EXPECT_TRUE(door_.take().empty());
  expect_that_a_rank_gets_in(door_, 0);
}

TEST_F(AtTheDoor, WhoTakesItForAnotherDoorIsRefused) {
  for (const Destination& other : {destination(door_, "another"), destination(door_, my_group, 2)}) {
    Socket socket = connect();
    EXPECT_THAT(error_of([&] { prove_as_client(socket, trust_, other, data_of(0), soon()); }).what(),
                HasSubstr("wrong secret"));
  }
  EXPECT_TRUE(door_.take().empty());
}

// Somebody listens where a rank believes the other one does, and passes all bytes on to that one's real door.
TEST_F(AtTheDoor, ARelayThroughAnotherPortIsRefused) {
  Listener squatter = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
  std::thread relay([&] {
    Socket deceived = squatter.accept(soon());
    Socket real = connect();
    const auto pass = [](Socket& from, Socket& to, std::size_t bytes) {
      std::vector<std::byte> message(bytes);
      from.receive_all(message, soon());
      to.send_all(message, soon());
    };
    pass(real, deceived, sizeof(proof::Greeting));
    pass(deceived, real, sizeof(proof::Opening));
    pass(real, deceived, sizeof(proof::Answer));
    pass(deceived, real, sizeof(proof::Confirmation));
    expect_closed(real);
  });
  Socket socket = Socket::connect(squatter.endpoint(), soon());
  const Destination believed = door_of("job", my_group, me, squatter.endpoint());
  EXPECT_THAT(error_of([&] { prove_as_client(socket, trust_, believed, data_of(0), soon()); }).what(),
              HasSubstr("wrong secret"));
  relay.join();
  EXPECT_TRUE(door_.take().empty());
}

TEST_F(AtTheDoor, HalfAProofHoldsNobodyUp) {
  Socket slow = connect();
  ClientProof proof(trust_, destination(door_), data_of(0));
  proof::Greeting greeting{};
  slow.receive_all(greeting, soon());
  slow.send_all(std::span(proof.opening()).first(20), soon());
  expect_that_a_rank_gets_in(door_, 2);
  slow.send_all(std::span(proof.opening()).subspan(20), soon());
  proof::Answer answer{};
  slow.receive_all(answer, soon());
  slow.send_all(proof.hear(answer), soon());
  const auto arrivals = next_arrivals(door_);
  ASSERT_EQ(arrivals.size(), 1U);
  EXPECT_EQ(arrivals[0].rank, 0) << "slow is no crime";
}

TEST_F(AtTheDoor, TwoHundredIdleConnectionsHoldNobodyUp) {
  std::vector<Socket> idle(200);
  for (Socket& socket : idle) socket = connect();
  expect_that_a_rank_gets_in(door_, 2);
}

TEST_F(AtTheDoor, ARankGetsInWhileOneSourceFloodsIt) {
  DoorOptions small = options(trust_);
  small.guests.most = 64;
  Door door(small, bell_);
  std::vector<Socket> flood;
  for (int i = 0; i < 512; ++i) {
    flood.push_back(Socket::connect(door.endpoint(), soon()));
    if (i % 128 != 0) continue;
    expect_that_a_rank_gets_in(door, 2);
  }
  expect_that_a_rank_gets_in(door, 0);
}

TEST_F(AtTheDoor, MoreIdleConnectionsThanThereIsRoomForMakeRoomForARank) {
  DoorOptions small = options(trust_);
  small.guests = {.most = 4, .patience = std::chrono::hours(1)};
  Door door(small, bell_);
  std::vector<Socket> idle(10);
  for (Socket& socket : idle) socket = Socket::connect(door.endpoint(), soon());
  expect_that_a_rank_gets_in(door, 2);
}

TEST_F(AtTheDoor, WhoSaysNothingForTooLongIsThrownOut) {
  DoorOptions hasty = options(trust_);
  hasty.guests.patience = std::chrono::milliseconds(100);
  Door door(hasty, bell_);
  Socket silent = Socket::connect(door.endpoint(), soon());
  proof::Greeting greeting{};
  silent.receive_all(greeting, soon());
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
  std::optional<Error> error;
  ASSERT_TRUE(eventually([&] {
    error = thrown_by([&] { (void)stranger->channel(0, Purpose::collective).try_write(noise(1, 1)); });
    return error.has_value();
  }));
  EXPECT_THAT(error->what(), HasSubstr("group \"another group\""));
  ranks.move(1, 0, noise(1000, 1));
  EXPECT_TRUE(ranks[0].look().empty());
}

}  // namespace
}  // namespace lockstep::tcp
