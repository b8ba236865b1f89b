#include "lockstep/view/flat_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::view {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

RankSums eighth_of_a_run() {
  RoutineSums rank{.name = "MPI_Comm_rank", .has_sizes = false};
  rank.by_size[0] = {.calls = 3};
  RoutineSums reduce{.name = "MPI_Allreduce"};
  reduce.by_size[2] = {.calls = 19780, .bytes = 158240, .ns = 90'822'000'000};
  reduce.by_size[4] = {.calls = 20, .bytes = 480, .ns = 1'000'000};
  return {.rank = 0,
          .communication_ns = 90'823'000'000,
          .costs = {.elapsed_ns = 187'298'000'000,
                    .user_ns = 4'127'728'000'000,
                    .system_ns = 728'100'000'000,
                    .most_resident_bytes = 8404ULL << 20},
          .routines = {rank, reduce}};
}

TEST(FlatProfile, HasMpitracesLayout) {
  const RunExtremes run{.ranks = 8,
                        .least_communication = 3,
                        .median_communication = 2,
                        .most_communication = 0,
                        .largest_memory = 0,
                        .largest_memory_bytes = 8404ULL << 20,
                        .longest_elapsed = 1,
                        .longest_elapsed_ns = 187'300'000'000};
  EXPECT_EQ(flat_profile(eighth_of_a_run(), run),
            R"(Data for MPI rank 0 of 8:
Times and statistics from MPI_Init() to MPI_Finalize().
-----------------------------------------------------------------------
MPI Routine                        #calls     avg. bytes      time(sec)
-----------------------------------------------------------------------
MPI_Comm_rank                           3            0.0          0.000
MPI_Allreduce                       19800            8.0         90.823
-----------------------------------------------------------------
MPI task 0 of 8 had the maximum communication time.
total communication time = 90.823 seconds.
total elapsed time       = 187.298 seconds.
user cpu time            = 4127.728 seconds.
system time              = 728.100 seconds.
max resident set size    = 8404.000 MBytes.

Rank 0 reported the largest memory utilization : 8404.00 MBytes
Rank 1 reported the largest elapsed time : 187.30 sec
-----------------------------------------------------------------
Message size distributions:

MPI_Allreduce             #calls    avg. bytes      time(sec)
                           19780           8.0         90.822
                              20          24.0          0.001

)");
}

TEST(FlatProfile, NamesTheLowestOfRanksThatHaveTheSame) {
  const RunExtremes run = extremes_of({{.rank = 2, .communication_ns = 5},
                                       {.rank = 0, .communication_ns = 9},
                                       {.rank = 1, .communication_ns = 5},
                                       {.rank = 3, .communication_ns = 9}});
  EXPECT_EQ(run.ranks, 4);
  EXPECT_EQ(run.least_communication, 1);
  EXPECT_EQ(run.median_communication, 2);
  EXPECT_EQ(run.most_communication, 0);
  EXPECT_THAT(ranks_to_write(run, false), ElementsAre(0, 1, 2));
  EXPECT_THAT(ranks_to_write(run, true), ElementsAre(0, 1, 2, 3));
}

TEST(FlatProfile, OfOneRankIsAllAtOnce) {
  const RunExtremes run = extremes_of({{.rank = 0, .communication_ns = 1}});
  EXPECT_THAT(flat_profile({.rank = 0}, run),
              HasSubstr("MPI task 0 of 1 had the maximum and median and minimum communication time."));
  EXPECT_THAT(flat_profile({.rank = 1}, run), Not(HasSubstr("MPI task")));
}

}  // namespace
}  // namespace lockstep::view
