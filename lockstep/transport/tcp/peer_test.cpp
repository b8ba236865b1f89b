// What became of the other ranks: who is gone, why, and that nobody is blamed for somebody else.
#include "lockstep/transport/tcp/peer.h"

#include "lockstep/transport/tcp/tcp_ranks_test.h"

namespace lockstep::tcp {
namespace {

using namespace std::chrono_literals;

using Kind = PeerNews::Kind;

std::size_t poke(Channel& channel) {
  std::byte byte{};
  return channel.try_read(std::span(&byte, 1));
}

// `rank` waits for `other` until they are connected.
void wait_connected(Ranks& ranks, int rank, int other) {
  EXPECT_TRUE(eventually([&] {
    (void)poke(ranks.from_to(rank, other));
    (void)ranks[other].look();
    return ranks[rank].wait_descriptors().size() > 1 && ranks[other].wait_descriptors().size() > 1;
  }));
}

const FirstCause::Cause cause{ErrorCode::mismatch, 12, 11, "ranks 10 and 12 called different operations"};

void expect_cause(const PeerNews& news, const FirstCause::Cause& expected) {
  EXPECT_EQ(news.kind, Kind::failed);
  EXPECT_EQ(news.cause.code, expected.code);
  EXPECT_EQ(news.cause.culprit, expected.culprit);
  EXPECT_EQ(news.cause.reporter, expected.reporter);
  EXPECT_EQ(news.cause.text, expected.text);
}

TEST(Peer, ThatNeverConnectedIsMissedWhenItDies) {
  Ranks ranks(2);
  wait_connected(ranks, 0, 1);
  EXPECT_TRUE(ranks[0].look().empty());
  ranks.kill(1);
  const PeerNews news = ranks.news_of(0);
  EXPECT_EQ(news.kind, Kind::died);
  EXPECT_EQ(news.rank, 1);
  EXPECT_EQ(poke(ranks.from_to(0, 1)), 0U) << "no exception";
  EXPECT_EQ(ranks[0].look().size(), 1U) << "each time anew";
}

TEST(Peer, WhoseListenerIsGoneDiedForWhoWritesAndForWhoReads) {
  for (const bool writes : {true, false}) {
    Ranks ranks(2);
    ranks.kill(1);
    EXPECT_EQ(writes ? ranks.from_to(0, 1).try_write(noise(1, 1)) : poke(ranks.from_to(0, 1)), 0U);
    EXPECT_EQ(ranks.news_of(0).kind, Kind::died);
    EXPECT_EQ(ranks.from_to(0, 1).try_write(noise(1, 1)), 0U) << "no new attempt";
  }
}

class Leaving : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Connections, Leaving, testing::Values(1, 4));

TEST_P(Leaving, APeerThatDiesLeavesWhatItHadSent) {
  Ranks ranks(2, 20s, {"127.0.0.1"}, GetParam());
  ranks.move(1, 0, noise(10, 1));
  const auto data = noise(100'000, 2);
  std::size_t written = 0;
  EXPECT_TRUE(eventually([&] {
    while (const std::size_t count = ranks.from_to(1, 0).try_write(std::span(data).subspan(written)))
      written += count;
    return written == data.size();
  }));
  ranks.kill(1);
  EXPECT_EQ(ranks.news_of(0).kind, Kind::died);
  std::vector<std::byte> received(data.size());
  std::size_t read = 0;
  EXPECT_TRUE(eventually([&] {
    while (const std::size_t count = ranks.from_to(0, 1).try_read(std::span(received).subspan(read)))
      read += count;
    return read == data.size();
  }));
  EXPECT_EQ(received, data);
  EXPECT_EQ(ranks.news_of(0).kind, Kind::died);
}

TEST(Peer, ThatLeavesIsNoNewsBeforeItsDataHasArrived) {
  Ranks ranks(2);
  ranks.move(1, 0, noise(10, 1));
  const auto data = noise(8 << 20, 2);
  std::size_t written = 0;
  std::vector<std::byte> received(data.size());
  std::size_t read = 0;
  EXPECT_TRUE(eventually([&] {
    while (written < data.size()) {
      const std::size_t count = ranks.from_to(1, 0).try_write(std::span(data).subspan(written));
      if (count == 0) break;
      written += count;
      if (written == data.size()) ranks.leave(1);
    }
    while (const std::size_t count = ranks.from_to(0, 1).try_read(std::span(received).subspan(read)))
      read += count;
    if (written < data.size()) return false;
    EXPECT_TRUE(read == data.size() || ranks[0].look().empty()) << "at byte " << read;
    return read == data.size();
  }));
  EXPECT_EQ(received, data);
  EXPECT_EQ(ranks.news_of(0).kind, Kind::left);
}

TEST(Peer, ThatLeavesIsNewsThoughItsProcessGoesOn) {
  Ranks ranks(2);
  ranks.move(1, 0, noise(10, 1));
  ranks[1].say_goodbye();
  EXPECT_EQ(ranks.news_of(0).kind, Kind::left);
}

TEST(Peer, ThatLeavesWithNoticesUnreadStillSaysGoodbye) {
  for (int round = 0; round < 5; ++round) {
    Ranks ranks(2);
    wait_connected(ranks, 0, 1);
    ranks[0].tell_failure(cause);  // is in rank 1's receive buffer when it closes
    ranks.leave(1);
    EXPECT_EQ(ranks.news_of(0).kind, Kind::left);
  }
}

TEST(Peer, ThatFailsSaysWhy) {
  for (const std::size_t length : {std::size_t{0}, std::size_t{17}, std::size_t{2000}}) {
    Ranks ranks(2);
    wait_connected(ranks, 0, 1);
    FirstCause::Cause told = cause;
    told.text = std::string(length, 'x');
    ranks[1].tell_failure(told);
    const PeerNews news = ranks.news_of(0);
    EXPECT_EQ(news.rank, 1);
    expect_cause(news, told);
    ranks.kill(1);
    expect_cause(ranks.news_of(0), told);
  }
}

TEST(Peer, ThatBothDialledAtTheSameTimeSaysEverythingOnce) {
  Ranks ranks(2);
  (void)poke(ranks.from_to(0, 1));
  (void)poke(ranks.from_to(1, 0));
  wait_connected(ranks, 0, 1);
  wait_connected(ranks, 1, 0);
  ranks[1].tell_failure(cause);
  expect_cause(ranks.news_of(0), cause);
  EXPECT_EQ(ranks[0].look().size(), 1U);
}

// It sends, fails because of another, and is gone before the receiver ever looks: it is not to blame.
TEST(Peer, ThatFailedIsNotBlamedByWhoOnlyEverReceived) {
  Ranks ranks(3);
  EXPECT_TRUE(eventually([&] { return ranks.from_to(1, 0).try_write(noise(10, 1)) == 10; }));
  ranks[1].tell_failure(cause);
  ranks.kill(1);
  EXPECT_TRUE(eventually([&] { return poke(ranks.from_to(0, 1)) == 1; }));
  expect_cause(ranks.news_of(0), cause);
}

// Its own threads never look again, yet who comes late is told.
TEST(Peer, ThatFailedTellsWhoConnectsLater) {
  Ranks ranks(2);
  ranks[1].tell_failure(cause);
  EXPECT_EQ(poke(ranks.from_to(0, 1)), 0U);
  expect_cause(ranks.news_of(0), cause);
}

TEST(Peer, ThatLeftTellsWhoConnectsLater) {
  Ranks ranks(2);
  ranks[1].say_goodbye();
  EXPECT_EQ(ranks.from_to(0, 1).try_write(noise(1, 1)), 0U);
  EXPECT_EQ(ranks.news_of(0).kind, Kind::left);
}

TEST(Peer, ThatFailsWhileItConnectsIsHeard) {
  Ranks ranks(2);
  EXPECT_EQ(poke(ranks.from_to(1, 0)), 0U);
  ranks[1].tell_failure(cause);  // its last call
  expect_cause(ranks.news_of(0), cause);
}

TEST(Peer, ThatIsToldOfAFailureIsNamedBeforeTheDead) {
  Ranks ranks(3);
  wait_connected(ranks, 0, 1);
  wait_connected(ranks, 0, 2);
  ranks.kill(1);
  EXPECT_EQ(ranks.news_of(0).kind, Kind::died);
  ranks[2].tell_failure(cause);
  ASSERT_TRUE(eventually([&] { return ranks[0].look().size() == 2; }));
  expect_cause(ranks[0].look().front(), cause);
}

TEST(Peer, SaysForWhomItWaitsAndWhenNoMore) {
  Ranks ranks(3);
  EXPECT_EQ(ranks[0].awaited_by(11, 1s), std::nullopt);
  wait_connected(ranks, 0, 1);
  const auto is_told = [&](int told, std::optional<int> expected) {
    return eventually([&] {
      ranks[1].tell_waiting(told);
      (void)ranks[0].look();
      return ranks[0].awaited_by(11, 1s) == expected;
    });
  };
  EXPECT_TRUE(is_told(12, 12));
  EXPECT_TRUE(is_told(10, 10));
  ranks[1].tell_waiting(-1);  // most often its last call for a long time
  EXPECT_TRUE(eventually([&] {
    (void)ranks[0].look();
    return ranks[0].awaited_by(11, 1s) == std::nullopt;
  }));
  EXPECT_EQ(ranks[0].awaited_by(12, 1s), std::nullopt);
}

TEST(Peer, ThatConnectsDuringALongWaitLearnsOfIt) {
  Ranks ranks(3);
  EXPECT_TRUE(eventually([&] {
    ranks[1].tell_waiting(12);
    (void)poke(ranks.from_to(0, 1));
    (void)ranks[0].look();
    (void)ranks[1].look();
    return ranks[0].awaited_by(11, 1s) == 12;
  }));
}

TEST(Peer, ThatIsNotConnectedIsHeardOnceAsked) {
  Ranks ranks(3);
  EXPECT_TRUE(eventually([&] {
    ranks[2].tell_waiting(11);
    (void)ranks[0].look();
    (void)ranks[2].look();
    return ranks[0].awaited_by(12, 1s) == 11;
  }));
}

}  // namespace
}  // namespace lockstep::tcp
