// What a rank makes of the bytes of another, which a test sends by hand.
#include "lockstep/transport/tcp/notice.h"

#include <limits>

#include "lockstep/transport/tcp/line.h"
#include "lockstep/transport/tcp/tcp_ranks_test.h"

namespace lockstep::tcp {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;

using Kind = PeerNews::Kind;

// Rank 1 is the test itself.
class ByHand : public testing::Test {
 protected:
  ByHand() : one_(std::move(ranks_.all[0])) {}

  Socket connect_proven(Line line) {
    Socket socket = Socket::connect(endpoint(), soon());
    prove_as_client(socket, ranks_.trust, door_of("job", "world", 0, endpoint()), claim_of(1, {line}),
                    soon());
    return socket;
  }
  Socket connect(Line line) {
    Socket socket = connect_proven(line);
    const std::size_t before = one_->wait_descriptors().size();
    if (line == Line::notices) {
      EXPECT_TRUE(eventually([&] {
        (void)one_->look();
        return one_->wait_descriptors().size() > before;
      }));
    }
    return socket;
  }
  static void send(Socket& socket, const std::string& text) {
    socket.send_all(std::as_bytes(std::span(text)), soon());
  }
  bool hears(std::optional<int> awaited) {
    return eventually([&] {
      EXPECT_TRUE(one_->look().empty());
      return one_->awaited_by(11, 1s) == awaited;
    });
  }
  PeerNews next_news() {
    std::vector<PeerNews> news;
    EXPECT_TRUE(eventually([&] { return !(news = one_->look()).empty(); }));
    return news.empty() ? PeerNews{} : news.front();
  }
  Endpoint endpoint() const { return Endpoint::parse(one_->address()); }
  Channel& channel() { return one_->channel(1, Purpose::collective); }

  static std::string waiting(int rank) { return encode({.kind = Notice::Kind::waiting, .awaited = rank}); }
  static std::string goodbye() { return encode({.kind = Notice::Kind::goodbye}); }

  Ranks ranks_{10};
  std::unique_ptr<TcpTransport> one_;
};

/// Those of docs/wire_formats.md.
TEST(Notice, HasTheBytesOfTheDocument) {
  EXPECT_EQ(encode({.kind = Notice::Kind::waiting, .awaited = 5}),
            "Lkn1\x02\x00\x00\x00"s
            "\x05\x00\x00\x00"s
            "\xff\xff\xff\xff"s
            "\xff\xff\xff\xff"s);
  const FirstCause::Cause cause{.code = ErrorCode::timeout, .culprit = 258, .reporter = 1, .text = "why"};
  EXPECT_EQ(encode({.kind = Notice::Kind::failure, .cause = cause}),
            "Lkn1\x01\x00\x03\x00"s + static_cast<char>(ErrorCode::timeout) +
                "\x00\x00\x00"s
                "\x02\x01\x00\x00"s
                "\x01\x00\x00\x00why"s);
}

TEST_F(ByHand, SeveralNoticesMayArriveAtOnceAndOneInPieces) {
  Socket notices = connect(Line::notices);
  send(notices, waiting(5) + waiting(6) + waiting(7).substr(0, 3));
  EXPECT_TRUE(hears(6));
  send(notices, waiting(7).substr(3, 10));
  EXPECT_TRUE(one_->look().empty());
  send(notices, waiting(7).substr(13) +
                    encode({.kind = Notice::Kind::failure, .cause = {.text = "why"}}).substr(0, 21));
  EXPECT_TRUE(hears(7));
  send(notices, "hy" + goodbye());
  const PeerNews news = next_news();
  EXPECT_EQ(news.kind, Kind::failed);
  EXPECT_EQ(news.cause.text, "why");
}

TEST_F(ByHand, WhatIsNoNoticeEndsTheConnectionAndNothingElse) {
  std::string wrong_magic = goodbye();
  wrong_magic[0] = 'X';
  std::string unknown = goodbye();
  unknown[4] = 9;
  std::string with_text = goodbye();
  with_text[6] = 1;
  std::string too_long = encode({.kind = Notice::Kind::failure});
  too_long[7] = 127;
  std::string unknown_code = encode({.kind = Notice::Kind::failure});
  unknown_code[8] = 99;
  Socket good = connect(Line::notices);
  for (const std::string& wrong : {wrong_magic, unknown, with_text, too_long, unknown_code}) {
    Socket bad = connect(Line::notices);
    send(bad, wrong + goodbye());
    send(good, waiting(static_cast<unsigned char>(wrong[4])));
    EXPECT_TRUE(hears(static_cast<unsigned char>(wrong[4])));
  }
  good = Socket();
  EXPECT_EQ(next_news().kind, Kind::died);
}

TEST_F(ByHand, WhoSaysThatItWaitsForALessThanNobodyWaitsForNobody) {
  Socket notices = connect(Line::notices);
  for (const int nobody : {-1, -2, std::numeric_limits<int>::min()}) {
    send(notices, waiting(9));
    EXPECT_TRUE(hears(9));
    send(notices, waiting(nobody));
    EXPECT_TRUE(hears(std::nullopt));
  }
}

TEST_F(ByHand, ATextOverTheLimitIsCut) {
  Socket notices = connect(Line::notices);
  send(notices, encode({.kind = Notice::Kind::failure, .cause = {.text = std::string(5000, 'x')}}));
  EXPECT_EQ(next_news().cause.text, std::string(NoticeStream::text_bytes, 'x'));
}

TEST_F(ByHand, AGoodbyeThatOvertookTheDataIsNoNewsYet) {
  Socket notices = connect(Line::notices);
  Socket data = connect(Line::collective);
  send(data, "a");
  std::byte byte{};
  EXPECT_TRUE(eventually([&] { return channel().try_read(std::span(&byte, 1)) == 1; }));
  send(notices, goodbye() + waiting(3));
  notices = Socket();
  EXPECT_TRUE(hears(3)) << "and nothing of its end";
  send(data, "b");
  data = Socket();
  EXPECT_TRUE(eventually([&] { return channel().try_read(std::span(&byte, 1)) == 1; }));
  EXPECT_EQ(next_news().kind, Kind::left);
}

TEST_F(ByHand, ADeathIsNoNewsWhileAConnectionMayStillBringData) {
  Socket notices = connect(Line::notices);
  Socket data = connect_proven(Line::collective);
  send(notices, waiting(3));
  notices = Socket();
  EXPECT_TRUE(hears(3)) << "and nothing of its end";
  data = Socket();
  EXPECT_EQ(next_news().kind, Kind::died);
}

TEST_F(ByHand, ASecondConnectionForTheSameDataIsClosed) {
  Socket notices = connect(Line::notices);
  Socket first = connect(Line::collective);
  send(first, "a");
  std::byte byte{};
  EXPECT_TRUE(eventually([&] { return channel().try_read(std::span(&byte, 1)) == 1; }));
  Socket second = connect(Line::collective);
  EXPECT_TRUE(eventually([&] {
    (void)one_->look();
    return second.try_receive(std::span(&byte, 1)).has_value();
  }));
  send(first, "b");
  EXPECT_TRUE(eventually([&] { return channel().try_read(std::span(&byte, 1)) == 1; }));
}

TEST_F(ByHand, EachConnectionForNoticesIsToldTheLastWordsOnce) {
  std::vector<Socket> early;
  for (int i = 0; i < 2; ++i) early.push_back(connect(Line::notices));
  const FirstCause::Cause cause{.text = "why"};
  one_->tell_failure(cause);
  early.push_back(connect(Line::notices));
  one_->say_goodbye();
  const std::string expected = encode({.kind = Notice::Kind::failure, .cause = cause}) + goodbye();
  for (Socket& socket : early) {
    std::string heard(expected.size(), ' ');
    socket.receive_all(std::as_writable_bytes(std::span(heard)), soon());
    EXPECT_EQ(heard, expected);
  }
  (void)one_->look();
  std::byte byte{};
  for (Socket& socket : early) EXPECT_FALSE(socket.try_receive(std::span(&byte, 1)).has_value()) << "no more";
}

}  // namespace
}  // namespace lockstep::tcp
