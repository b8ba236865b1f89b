#include "lockstep/trace/sent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace lockstep::trace {
namespace {

TEST(SentTable, AddsUpByPeerInTheOrderInWhichTheyWereMet) {
  const auto table = std::make_unique<SentTable>();
  EXPECT_TRUE(read_sent(*table).empty());
  add_sent(*table, {.peer = 5, .bytes = 10, .busy_ns = 100});
  add_sent(*table, {.peer = 0, .bytes = 1, .busy_ns = 2});
  add_sent(*table, {.peer = 5, .bytes = 30, .busy_ns = 300});
  const auto sent = read_sent(*table);
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].peer, 5);
  EXPECT_EQ(sent[0].bytes, 40U);
  EXPECT_EQ(sent[0].busy_ns, 400U);
  EXPECT_EQ(sent[1].peer, 0);
  EXPECT_EQ(sent[1].bytes, 1U);
}

TEST(SentTable, LeavesOutPeersForWhomThereIsNoRow) {
  const auto table = std::make_unique<SentTable>();
  const int rows = static_cast<int>(SentTable::capacity);
  for (int peer = 0; peer < rows + 3; ++peer) add_sent(*table, {.peer = peer, .bytes = 1});
  add_sent(*table, {.peer = rows - 1, .bytes = 1});
  const auto sent = read_sent(*table);
  ASSERT_EQ(sent.size(), SentTable::capacity);
  EXPECT_EQ(sent.back().peer, rows - 1);
  EXPECT_EQ(sent.back().bytes, 2U);
}

}  // namespace
}  // namespace lockstep::trace
