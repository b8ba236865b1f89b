#include "lockstep/group/noticeboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/failure_test.h"

namespace lockstep {
namespace {

using ::testing::StartsWith;

const Deadline soon = Deadline::after(std::chrono::seconds(30));

/// One that all see at once.
class Board final : public ProcessManager {
 public:
  std::string job(Deadline) override { return "job"; }
  void put(const std::string& key, const std::string& value, Deadline) override { notes[key] = value; }
  void fence(Deadline) override { ++fences; }
  std::string get(const std::string& key, Deadline) override { return notes[key]; }

  std::map<std::string, std::string> notes;
  int fences = 0;
};

Secret given() { return Secret::from_bytes(std::vector<std::byte>(32, std::byte{7})); }

TEST(MeetOn, Rank0SaysWhereAndASecret) {
  Board board;
  const MeetingPlace first = meet_on(board, "127.0.0.1", std::nullopt, soon);
  const MeetingPlace other = meet_on(board, std::nullopt, std::nullopt, soon);
  EXPECT_EQ(board.fences, 2);
  ASSERT_TRUE(first.listener);
  EXPECT_FALSE(other.listener);
  EXPECT_EQ(first.store, first.listener->endpoint());
  EXPECT_EQ(other.store, first.store);
  EXPECT_EQ(first.secret, other.secret);
}

TEST(MeetOn, ASecretOfTheUsersIsNotShown) {
  Board board;
  const MeetingPlace first = meet_on(board, "127.0.0.1", given(), soon);
  EXPECT_EQ(board.notes.begin()->second, first.store.to_string());
  EXPECT_EQ(meet_on(board, std::nullopt, given(), soon).secret, given());
  EXPECT_THAT(
      test::failure_of([&] { meet_on(board, std::nullopt, std::nullopt, soon); }, ErrorCode::mismatch),
      StartsWith("rank 0 has a secret"));
}

TEST(MeetOn, ASecretOnSomeRanksAloneIsAMismatch) {
  Board board;
  meet_on(board, "127.0.0.1", std::nullopt, soon);
  EXPECT_THAT(test::failure_of([&] { meet_on(board, std::nullopt, given(), soon); }, ErrorCode::mismatch),
              StartsWith("this rank has a secret"));
}

TEST(MeetOn, WhatIsNoPlaceOrNoSecretIsSaid) {
  Board board;
  for (const char* note :
       {"tcp:10.0.0.1:5/", "tcp:10.0.0.1:5/abc", "tcp:10.0.0.1:5/zz", "tcp:10.0.0.1:5/ab"}) {
    board.notes["lockstep-meeting-place"] = note;
    EXPECT_THROW(meet_on(board, std::nullopt, std::nullopt, soon), Error) << note;
  }
  board.notes["lockstep-meeting-place"] = "nowhere/00";
  EXPECT_THROW(meet_on(board, std::nullopt, std::nullopt, soon), Error);
}

}  // namespace
}  // namespace lockstep
