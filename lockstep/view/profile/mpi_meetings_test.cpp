#include "lockstep/view/profile/mpi_meetings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::view {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

MpiCall mpi_call(std::string_view routine, std::uint64_t begin, std::uint64_t end,
                 std::uint32_t communicator = 1) {
  return {.begin_ns = begin, .end_ns = end, .routine = routine, .communicator = communicator};
}

std::vector<RankTimeline> ranks_with(std::vector<std::vector<MpiCall>> calls) {
  std::vector<RankTimeline> ranks;
  for (auto& of_rank : calls)
    ranks.push_back({.rank = static_cast<int>(ranks.size()), .mpi_calls = std::move(of_rank)});
  return ranks;
}

std::vector<std::uint64_t> begins_of(const std::vector<RankTimeline>& ranks, const MpiMeeting& meeting) {
  std::vector<std::uint64_t> begins;
  for (const auto& [place, call] : meeting.members) begins.push_back(ranks[place].mpi_calls[call].begin_ns);
  return begins;
}

TEST(MpiMeetings, AreTheCallsOfACommunicatorByTheirOrder) {
  const auto ranks = ranks_with({{mpi_call("MPI_Allreduce", 30, 45), mpi_call("MPI_Send", 12, 15),
                                  mpi_call("MPI_Barrier", 10, 25), mpi_call("MPI_Barrier", 50, 60, 2)},
                                 {mpi_call("MPI_Barrier", 20, 26), mpi_call("MPI_Bcast", 27, 28),
                                  mpi_call("MPI_Allreduce", 40, 44), mpi_call("MPI_Barrier", 52, 58, 2)},
                                 {mpi_call("MPI_Barrier", 18, 27), mpi_call("MPI_Allreduce", 41, 46)}});
  const MpiMeetings meetings = mpi_meetings(ranks, 0);
  EXPECT_FALSE(meetings.are_lost);
  ASSERT_THAT(meetings.all, SizeIs(3));
  EXPECT_THAT(begins_of(ranks, meetings.all[0]), ElementsAre(10, 20, 18));
  EXPECT_THAT(begins_of(ranks, meetings.all[1]), ElementsAre(30, 40, 41));
  EXPECT_THAT(begins_of(ranks, meetings.all[2]), ElementsAre(50, 52)) << "a communicator of two ranks";
}

TEST(MpiMeetings, AreNoneWhereARankWouldHaveLeftBeforeAnotherCame) {
  std::vector<std::vector<MpiCall>> calls(2);
  for (std::uint64_t i = 0; i < 40; ++i) {
    if (i != 3) calls[0].push_back(mpi_call("MPI_Allreduce", 100 * i, 100 * i + 10));  // it is missing
    calls[1].push_back(mpi_call("MPI_Allreduce", 100 * i + 5, 100 * i + 10));
  }
  const MpiMeetings meetings = mpi_meetings(ranks_with(calls), 0);
  EXPECT_TRUE(meetings.are_lost);
  EXPECT_THAT(meetings.all, IsEmpty());
}

TEST(MpiMeetings, MayLackAFew) {
  std::vector<std::vector<MpiCall>> calls(2);
  for (std::uint64_t i = 0; i < 40; ++i) {
    // Nothing was to be moved, and rank 0 did not wait.
    calls[0].push_back(mpi_call("MPI_Alltoallv", 100 * i, 100 * i + (i == 7 ? 2 : 10)));
    calls[1].push_back(mpi_call("MPI_Alltoallv", 100 * i + 5, 100 * i + 10));
  }
  const MpiMeetings meetings = mpi_meetings(ranks_with(calls), 0);
  EXPECT_FALSE(meetings.are_lost);
  EXPECT_THAT(meetings.all, SizeIs(39));
}

TEST(MpiMeetings, AllowForTheErrorOfClocks) {
  const auto ranks = ranks_with({{mpi_call("MPI_Barrier", 100, 110)}, {mpi_call("MPI_Barrier", 118, 125)}});
  EXPECT_THAT(mpi_meetings(ranks, 3).all, IsEmpty());
  EXPECT_THAT(mpi_meetings(ranks, 4).all, SizeIs(1));
}

TEST(MpiMeetings, AreNoneWithARankThatEndedInIt) {
  auto ranks = ranks_with({{mpi_call("MPI_Barrier", 100, 110)}, {mpi_call("MPI_Barrier", 105, 110)}});
  ranks[1].mpi_calls[0].has_returned = false;
  EXPECT_THAT(mpi_meetings(ranks, 0).all, IsEmpty());
}

TEST(MpiMeetings, EndTheWaitOfAllWhenTheLastRankComes) {
  auto ranks = ranks_with({{mpi_call("MPI_Allreduce", 10, 50)},
                           {mpi_call("MPI_Allreduce", 40, 52)},
                           {mpi_call("MPI_Allreduce", 20, 51)}});
  ranks[2].mpi_calls[0].arrived_ns = 44;  // as a barrier said
  ranks[2].mpi_calls[0].has_arrived = true;
  note_arrivals(ranks, 0);
  std::vector<std::uint64_t> arrived;
  for (const RankTimeline& rank : ranks) {
    EXPECT_TRUE(rank.mpi_calls[0].has_arrived);
    arrived.push_back(rank.mpi_calls[0].arrived_ns);
  }
  EXPECT_THAT(arrived, ElementsAre(40, 40, 44));
}

}  // namespace
}  // namespace lockstep::view
