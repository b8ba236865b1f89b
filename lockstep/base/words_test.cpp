#include "lockstep/base/words.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>

namespace lockstep::base {
namespace {

using namespace std::chrono_literals;

std::string name(std::vector<int> ranks, std::size_t most = SIZE_MAX) { return name_ranks(ranks, most); }
std::string name_ranges(std::vector<int> ranks) { return name_rank_ranges(ranks); }

TEST(Words, RanksAreNamedAsTheyCome) {
  EXPECT_EQ(name({3}), "rank 3");
  EXPECT_EQ(name({0, 1, 3}), "ranks 0, 1, 3");
  EXPECT_EQ(name({3, 0}), "ranks 3, 0");
}

TEST(Words, OfManyRanksTheFirstAreNamed) {
  EXPECT_EQ(name({0, 1, 2, 3}, 4), "ranks 0, 1, 2, 3");
  EXPECT_EQ(name({0, 1, 2, 3}, 3), "ranks 0, 1, 2, ...");
}

TEST(Words, RangesOfRanksAreInOrder) {
  EXPECT_EQ(name_ranges({3}), "rank 3");
  EXPECT_EQ(name_ranges({4, 0, 2, 3}), "ranks 0, 2-4");
}

TEST(Words, RanksThatAreMissingAreRanges) {
  EXPECT_EQ(name_ranks_without({0, 1, 2}, 3), "");
  EXPECT_EQ(name_ranks_without({0, 2, 9}, 3), "rank 1");
  EXPECT_EQ(name_ranks_without({2, 3, 6}, 1000000000), "ranks 0-1, 4-5, 7-999999999");
}

TEST(Words, NumbersAreListedAsRanges) {
  EXPECT_EQ(to_ranges({}), "");
  EXPECT_EQ(to_ranges({3}), "3");
  EXPECT_EQ(to_ranges({8, 1, 0, 2, 5, 6}), "0-2,5-6,8");
}

TEST(Words, MeasuredTimesAreForPeople) {
  EXPECT_EQ(duration(0), "0.0 ms");
  EXPECT_EQ(duration(420'000), "0.4 ms");
  EXPECT_EQ(duration(849'600'000), "850 ms");
  EXPECT_EQ(duration(999'700'000), "1.0 s");
  EXPECT_EQ(duration(59'960'000'000), "1 min 0 s");
  EXPECT_EQ(duration(61'500'000'000), "1 min 2 s");
  EXPECT_EQ(duration(200'000'000'000), "3 min 20 s");
  EXPECT_EQ(duration(3'900'000'000'000), "1 h 5 min");
}

TEST(Words, TimesThatWereSetAreTheSameAgain) {
  EXPECT_EQ(exact_duration(30s), "30 s");
  EXPECT_EQ(exact_duration(5min), "300 s");
  EXPECT_EQ(exact_duration(1500ms), "1500 ms");
  EXPECT_EQ(exact_duration(1us), "1 ms");
}

TEST(Words, CountsHaveTheirPlural) {
  EXPECT_EQ(counted(0, "core"), "0 cores");
  EXPECT_EQ(counted(1, "core"), "1 core");
  EXPECT_EQ(counted(2, "core"), "2 cores");
  EXPECT_EQ(counted(1, "process", "processes"), "1 process");
  EXPECT_EQ(counted(2, "process", "processes"), "2 processes");
}

TEST(Words, TheHostHasItsName) {
  std::array<char, 256> name{};
  ASSERT_EQ(::gethostname(name.data(), name.size() - 1), 0);
  EXPECT_EQ(host_name(), name.data());
}

TEST(Words, SignalsHaveTheirNames) {
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_name(SIGRTMIN + 1), "signal " + std::to_string(SIGRTMIN + 1));
}

}  // namespace
}  // namespace lockstep::base
