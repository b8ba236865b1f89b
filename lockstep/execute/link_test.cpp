// What a link makes of bytes that no rank of this version sends. What it does with right ones is tested with
// the collectives.
#include "lockstep/execute/link.h"

#include <gtest/gtest.h>

#include "lockstep/base/waits_test.h"
#include "lockstep/execute/channel_test.h"

namespace lockstep {
namespace {

using test::ChannelByHand;
using test::error_of;

constexpr Signature called{.elements = 4, .operation = Operation::broadcast};

TEST(Link, TakesNoMessageOfAnUnknownKind) {
  for (const std::uint32_t kind : {2U, 0xffffffffU}) {
    ChannelByHand channel;
    Link link(channel);
    std::vector<std::byte> bytes(4);
    (void)link.post_receive(0, called, bytes);
    channel.arrive({.kind = static_cast<MessageHeader::Kind>(kind), .bytes = 4, .signature = called}, 4);
    EXPECT_EQ(error_of([&] { (void)link.advance(); }).code(), ErrorCode::corrupt_data);
    EXPECT_EQ(link.received(), 0U);
  }
}

TEST(Link, HearsInWhichMessageTheOtherSideWaits) {
  ChannelByHand channel;
  Link link(channel);
  EXPECT_FALSE(link.told_wait());
  channel.arrive({.kind = MessageHeader::Kind::wait, .sequence = 3, .bytes = 7, .signature = called});
  channel.arrive({.kind = MessageHeader::Kind::standstill, .sequence = 4, .bytes = 8, .signature = called});
  EXPECT_FALSE(link.listen());
  ASSERT_TRUE(link.told_wait());
  EXPECT_EQ(link.told_wait()->kind, MessageHeader::Kind::standstill);
  EXPECT_EQ(link.told_wait()->sequence, 4U);
  EXPECT_EQ(link.told_wait()->bytes, 8U);
}

TEST(Link, TakesACallForNoData) {
  ChannelByHand channel;
  Link link(channel);
  channel.arrive({.kind = MessageHeader::Kind::call, .sequence = 3, .signature = called});
  const auto heard = link.listen();
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->sequence, 3U);
  EXPECT_TRUE(heard->signature.matches(called));
}

}  // namespace
}  // namespace lockstep
