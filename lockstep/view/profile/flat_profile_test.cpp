#include "lockstep/view/profile/flat_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::view {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t second = 1'000'000'000;

RoutineSums routine(const std::string& name, bool has_sizes,
                    std::vector<std::pair<std::uint64_t, CallSums>> by_bytes) {
  RoutineSums made{.name = name, .has_sizes = has_sizes};
  for (const auto& [bytes, sums] : by_bytes)
    made.by_size[static_cast<std::size_t>(base::size_bin(bytes))] += sums;
  return made;
}

// The sample of a framework's training under mpitrace, as far as its figures go.
RankSums sample() {
  return {.rank = 0,
          .communication_ns = 163'396'000'000,
          .costs = {.elapsed_ns = 187'298'000'000,
                    .user_ns = 4127'728'000'000,
                    .system_ns = 728'100'000'000,
                    .most_resident_bytes = static_cast<std::uint64_t>(8403.938 * (1 << 20))},
          .routines = {routine("MPI_Comm_rank", false, {{0, {.calls = 3}}}),
                       routine("MPI_Allreduce", true,
                               {{8, {.calls = 19780, .bytes = 158240, .ns = 90'822'000'000}},
                                {64 << 20, {.calls = 4781, .bytes = 5111935000, .ns = 71'258'000'000}}}),
                       routine("MPI_Gatherv", false, {{0, {.calls = 126, .bytes = 7, .ns = 434'000'000}}})}};
}

TEST(FlatProfile, HasTheLayoutOfMpitrace) {
  const RunExtremes run{.ranks = 8,
                        .least_communication = 3,
                        .median_communication = 5,
                        .most_communication = 0,
                        .largest_memory = 0,
                        .largest_memory_bytes = static_cast<std::uint64_t>(8403.94 * (1 << 20)),
                        .longest_elapsed = 0,
                        .longest_elapsed_ns = 187'300'000'000};
  EXPECT_EQ(flat_profile(sample(), run),
            "Data for MPI rank 0 of 8:\n"
            "Times and statistics from MPI_Init() to MPI_Finalize().\n"
            "-----------------------------------------------------------------------\n"
            "MPI Routine                        #calls     avg. bytes      time(sec)\n"
            "-----------------------------------------------------------------------\n"
            "MPI_Comm_rank                           3            0.0          0.000\n"
            "MPI_Allreduce                       24561       208138.6        162.080\n"
            "MPI_Gatherv                           126            0.0          0.434\n"
            "-----------------------------------------------------------------\n"
            "MPI task 0 of 8 had the maximum communication time.\n"
            "total communication time = 163.396 seconds.\n"
            "total elapsed time       = 187.298 seconds.\n"
            "user cpu time            = 4127.728 seconds.\n"
            "system time              = 728.100 seconds.\n"
            "max resident set size    = 8403.938 MBytes.\n"
            "\n"
            "Rank 0 reported the largest memory utilization : 8403.94 MBytes\n"
            "Rank 0 reported the largest elapsed time : 187.30 sec\n"
            "-----------------------------------------------------------------\n"
            "Message size distributions:\n"
            "\n"
            "MPI_Allreduce             #calls    avg. bytes      time(sec)\n"
            "                           19780           8.0         90.822\n"
            "                            4781     1069218.8         71.258\n"
            "\n");
}

TEST(FlatProfile, SaysOfARankWhatItStandsOutBy) {
  const RunExtremes run{.ranks = 1};
  EXPECT_THAT(flat_profile(sample(), run),
              HasSubstr("MPI task 0 of 1 had the maximum and median and minimum communication time.\n"));
  EXPECT_THAT(flat_profile(
                  sample(),
                  {.ranks = 4, .least_communication = 1, .median_communication = 2, .most_communication = 3}),
              Not(HasSubstr("communication time.\n")));
}

RankCosts costs(int rank, std::uint64_t communication, std::uint64_t memory = 0, std::uint64_t elapsed = 0) {
  return {.rank = rank,
          .communication_ns = communication * second,
          .costs = {.elapsed_ns = elapsed * second, .most_resident_bytes = memory}};
}

TEST(RunExtremes, AreThoseOfTheRanksAndTheLowestOfEqualOnes) {
  const RunExtremes run =
      extremes_of({costs(3, 5, 7, 1), costs(1, 9, 9, 2), costs(0, 1, 9, 2), costs(2, 9, 1, 2)});
  EXPECT_EQ(run.ranks, 4);
  EXPECT_EQ(run.least_communication, 0);
  EXPECT_EQ(run.median_communication, 3);
  EXPECT_EQ(run.most_communication, 1);
  EXPECT_EQ(run.largest_memory, 0);
  EXPECT_EQ(run.longest_elapsed, 0);
  EXPECT_EQ(run.longest_elapsed_ns, 2 * second);
}

TEST(RanksToWrite, AreThoseThatStandOutAndTheFirst) {
  const RunExtremes run{
      .ranks = 6, .least_communication = 4, .median_communication = 2, .most_communication = 4};
  EXPECT_THAT(ranks_to_write(run, false), ElementsAre(0, 2, 4));
  EXPECT_THAT(ranks_to_write(run, true), ElementsAre(0, 1, 2, 3, 4, 5));
}

}  // namespace
}  // namespace lockstep::view
