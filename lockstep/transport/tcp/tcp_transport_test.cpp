#include "lockstep/transport/tcp/tcp_transport.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <tuple>

#include "lockstep/base/split.h"
#include "lockstep/transport/tcp/bell.h"
#include "lockstep/transport/tcp/tcp_ranks_test.h"

namespace lockstep::tcp {
namespace {

using testing::HasSubstr;

// One direction of a transfer, in pieces of random size.
class Pieces {
 public:
  Pieces(Channel& channel, std::size_t bytes, unsigned seed)
      : channel_(channel), data_(noise(bytes, seed)), random_(seed + 77) {}

  bool write() {
    return step([&](auto piece) { return channel_.try_write(piece); });
  }
  bool read() {
    return step([&](auto piece) {
      std::vector<std::byte> arrived(piece.size());
      const std::size_t count = channel_.try_read(arrived);
      EXPECT_TRUE(
          std::equal(arrived.begin(), arrived.begin() + static_cast<std::ptrdiff_t>(count), piece.begin()));
      return count;
    });
  }
  bool is_done() const { return position_ == data_.size(); }

 private:
  // True if anything moved.
  template <class Move>
  bool step(Move move) {
    if (is_done()) return false;
    const std::size_t most = std::uniform_int_distribution<std::size_t>(1, 1U << (random_() % 21))(random_);
    const std::size_t count =
        move(std::span(data_).subspan(position_, std::min(most, data_.size() - position_)));
    position_ += count;
    return count > 0;
  }

  Channel& channel_;
  std::vector<std::byte> data_;
  std::minstd_rand random_;
  std::size_t position_ = 0;
};

const std::vector<std::string> one_network = {"127.0.0.1"}, two_networks = {"127.0.0.1", "127.0.0.2"};
constexpr auto long_enough = std::chrono::seconds(20);

class Sizes : public testing::TestWithParam<std::tuple<std::size_t, int, std::vector<std::string>>> {};
INSTANTIATE_TEST_SUITE_P(Bytes, Sizes,
                         testing::Combine(testing::Values(1, 48, 4096, 65535, 65537, 1 << 20, 8 << 20),
                                          testing::Values(1, 3), testing::Values(one_network, two_networks)),
                         [](const auto& info) {
                           return fmt::format("{}on{}to{}", std::get<0>(info.param), std::get<1>(info.param),
                                              std::get<2>(info.param).size());
                         });

TEST_P(Sizes, ArriveInOrderInBothDirectionsAtOnce) {
  const auto& [bytes, connections, interfaces] = GetParam();
  Ranks ranks(2, long_enough, interfaces, connections);
  for (const Purpose purpose : {Purpose::collective, Purpose::point_to_point}) {
    Pieces out(ranks.from_to(0, 1, purpose), bytes, 1), out_read(ranks.from_to(1, 0, purpose), bytes, 1);
    Pieces back(ranks.from_to(1, 0, purpose), bytes, 2), back_read(ranks.from_to(0, 1, purpose), bytes, 2);
    EXPECT_TRUE(eventually([&] {
      while (out.write() | out_read.read() | back.write() | back_read.read()) {
      }
      return out_read.is_done() && back_read.is_done();
    }));
    EXPECT_TRUE(out.is_done() && back.is_done());
  }
  EXPECT_TRUE(ranks[0].look().empty());
  EXPECT_TRUE(ranks[1].look().empty());
}

// What Progress does: no wait is ended by its time limit alone.
TEST(TcpTransport, WakesWhoWaitsForItsDescriptors) {
  for (const int connections : {1, 3}) {
    Ranks ranks(2, long_enough, two_networks, connections);
    std::atomic<int> slept_in_vain = 0;
    const auto exchange = [&](int me, int other) {
      Channel& channel = ranks.from_to(me, other);
      const unsigned seed = static_cast<unsigned>(me);
      Pieces out(channel, 3 << 20, seed), in(channel, 3 << 20, 1 - seed);
      while (!out.is_done() || !in.is_done()) {
        if (out.write() | in.read()) continue;
        auto descriptors = ranks[me].wait_descriptors();
        slept_in_vain += ::poll(descriptors.data(), descriptors.size(), 10'000) == 0 ? 1 : 0;
      }
    };
    std::thread other([&] { exchange(1, 0); });
    exchange(0, 1);
    other.join();
    EXPECT_EQ(slept_in_vain, 0) << connections;
  }
}

/// How many connections of this process's network lead to port `port` of `address`.
int connections_to(const Endpoint& endpoint) {
  in_addr address{};
  EXPECT_EQ(::inet_pton(AF_INET, endpoint.host.c_str(), &address), 1);
  const std::string remote = fmt::format(" {:08X}:{:04X} 01 ", address.s_addr, endpoint.port);
  std::ifstream table("/proc/self/net/tcp");
  int count = 0;
  for (std::string line; std::getline(table, line);) count += line.find(remote) != std::string::npos ? 1 : 0;
  return count;
}

TEST(TcpTransport, ConnectsSeveralTimesToEachNetwork) {
  Ranks ranks(2, long_enough, two_networks, 3);
  ranks.move(0, 1, noise(1 << 20, 1));
  const auto endpoints = base::split(ranks.addresses[1], ',');
  ASSERT_EQ(endpoints.size(), 2U);
  EXPECT_EQ(connections_to(Endpoint::parse(endpoints[0])), 3 + 1) << "and one for notices";
  EXPECT_EQ(connections_to(Endpoint::parse(endpoints[1])), 3);
}

TEST(TcpTransport, RefusesMoreConnectionsThanALineHas) {
  Ranks ranks(2, long_enough, two_networks, 3);
  std::string many;
  for (int i = 0; i < 30; ++i) many += (i == 0 ? "" : ",") + ranks.addresses[1];
  EXPECT_THAT(error_of([&] {
                ranks[0].set_addresses({"", many});
              }).what(),
              HasSubstr("rank 11 listens at 60 addresses; with 3 connections to each that is more than 64"));
}

TEST(TcpTransport, WakesWhoWaitsForAConnection) {
  Ranks ranks(2);
  int slept_in_vain = 0;
  while (ranks.from_to(0, 1).try_write(noise(1, 1)) == 0) {
    auto descriptors = ranks[0].wait_descriptors();
    slept_in_vain += ::poll(descriptors.data(), descriptors.size(), 10'000) == 0 ? 1 : 0;
  }
  EXPECT_EQ(slept_in_vain, 0);
}

TEST(Bell, IsHeardUntilItIsTaken) {
  Bell bell;
  const auto is_heard = [&] {
    pollfd descriptor = bell.wait_descriptor();
    return ::poll(&descriptor, 1, 0) == 1;
  };
  EXPECT_FALSE(is_heard());
  bell.ring();
  bell.ring();
  EXPECT_TRUE(is_heard());
  EXPECT_TRUE(is_heard()) << "a ring between a look and a wait is not lost";
  EXPECT_TRUE(bell.take());
  EXPECT_FALSE(bell.take());
  EXPECT_FALSE(is_heard());
}

bool is_awake(TcpTransport& transport) {
  auto descriptors = transport.wait_descriptors();
  return ::poll(descriptors.data(), descriptors.size(), 0) > 0;
}

TEST(TcpTransport, SleepsBesideDataThatNobodyWantsAndBesideTheDead) {
  Ranks ranks(3);
  for (const int other : {1, 2}) ranks.move(other, 0, noise(10, 1));
  std::byte byte{};
  ASSERT_EQ(ranks.from_to(1, 0).try_write(noise(10, 1)), 10U);
  EXPECT_TRUE(eventually([&] { return ranks.from_to(0, 1).try_read(std::span(&byte, 1)) == 1; }));
  (void)ranks[0].wait_descriptors();  // the reads until now are no wishes any more
  const auto sleeps = [&] {
    (void)ranks[0].look();  // the door may ring once more for who was let in with the one before
    return !is_awake(ranks[0]);
  };
  EXPECT_TRUE(eventually(sleeps)) << "9 bytes lie there, but nobody asks for them";

  EXPECT_EQ(ranks.from_to(0, 2).try_read(std::span(&byte, 1)), 0U);
  EXPECT_FALSE(is_awake(ranks[0]));
  EXPECT_EQ(ranks.from_to(0, 2).try_read(std::span(&byte, 1)), 0U);
  ranks.kill(2);
  EXPECT_TRUE(eventually([&] {
    (void)ranks.from_to(0, 2).try_read(std::span(&byte, 1));
    return is_awake(ranks[0]);
  })) << "its end wakes who waits for it";
  EXPECT_EQ(ranks.news_of(0).rank, 2);
  EXPECT_EQ(ranks.from_to(0, 2).try_read(std::span(&byte, 1)), 0U);
  EXPECT_FALSE(is_awake(ranks[0])) << "but only once";
}

TEST(TcpTransport, ConnectsWhenFirstUsed) {
  Ranks ranks(2);
  (void)ranks.from_to(0, 1);
  (void)ranks[0].look();
  EXPECT_FALSE(is_awake(ranks[1]));
  EXPECT_EQ(ranks[1].wait_descriptors().size(), 1U);
  ranks.move(0, 1, noise(10, 1));
  EXPECT_GT(ranks[1].wait_descriptors().size(), 1U);
}

TEST(TcpTransport, WritesNothingToWhoTakesNothingAndDoesNotWait) {
  Ranks ranks(2);
  const auto data = noise(64 << 20, 5);
  std::size_t written = 0;
  const auto write_all_that_goes = [&] {
    const std::size_t before = written;
    while (const std::size_t count = ranks.from_to(0, 1).try_write(std::span(data).subspan(written)))
      written += count;
    return written > before;
  };
  EXPECT_TRUE(eventually(write_all_that_goes));
  EXPECT_TRUE(eventually([&] { return !write_all_that_goes(); }));
  EXPECT_LT(written, data.size());
  EXPECT_TRUE(ranks[0].look().empty()) << "slow is not dead";
  std::vector<std::byte> received(written);
  std::size_t read = 0;
  EXPECT_TRUE(eventually([&] {
    while (const std::size_t count = ranks.from_to(1, 0).try_read(std::span(received).subspan(read)))
      read += count;
    return read == written;
  }));
  EXPECT_TRUE(std::equal(received.begin(), received.end(), data.begin()));
}

TEST(TcpTransport, DoesNotWaitForWhoNeverAnswersAndThenNamesHim) {
  Ranks ranks(2, std::chrono::milliseconds(300));
  const Listener stopped =
      Listener::bind(Endpoint::tcp("127.0.0.1", 0));  // the kernel connects, nobody answers
  ranks[0].set_addresses({"", stopped.endpoint().to_string()});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(ranks.from_to(0, 1).try_write(noise(1, 1)), 0U);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(250));
  EXPECT_FALSE(is_awake(ranks[0]));
  std::optional<Error> error;
  ASSERT_TRUE(eventually([&] {
    error = thrown_by([&] { (void)ranks.from_to(0, 1).try_write(noise(1, 1)); });
    return error.has_value();
  }));
  EXPECT_EQ(error->peer(), 11);
  EXPECT_THAT(error->what(), HasSubstr("rank 11 did not answer"));
  EXPECT_EQ(error_of([&] { (void)ranks.from_to(0, 1).try_read({}); }).code(), ErrorCode::timeout)
      << "for good";
}

TEST(TcpTransport, EndsWhileItStillConnects) {
  const auto begin = std::chrono::steady_clock::now();
  const Listener stopped = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
  {
    Ranks ranks(2);
    ranks[0].set_addresses({"", stopped.endpoint().to_string()});
    EXPECT_EQ(ranks.from_to(0, 1).try_write(noise(1, 1)), 0U);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(TcpTransport, RefusesRanksWithoutAnAddress) {
  Ranks ranks(2);
  ranks[0].set_addresses({"", ""});
  EXPECT_THAT(error_of([&] { (void)ranks.from_to(0, 1); }).what(),
              HasSubstr("rank 1 of group \"world\" has no address"));
}

// The child has copies of all descriptors; to take down its copy of the transport must not touch the
// parent's.
TEST(TcpTransport, SurvivesTheEndOfAForkedCopy) {
  Ranks ranks(2);
  ranks.move(0, 1, noise(100, 1));
  const pid_t child = ::fork();
  if (child == 0) {
    ranks.kill(0);
    ::_exit(0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ranks.move(0, 1, noise(100, 2));
  ranks.move(1, 0, noise(100, 3));
  EXPECT_TRUE(ranks[0].look().empty());
  EXPECT_TRUE(ranks[1].look().empty());
}

}  // namespace
}  // namespace lockstep::tcp
