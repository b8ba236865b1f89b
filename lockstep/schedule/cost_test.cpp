// The formulas of docs/algorithms.md are what the schedules count to.
#include "lockstep/schedule/cost.h"

#include <gtest/gtest.h>

#include <bit>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/schedule/replay.h"

namespace lockstep::schedule {
namespace {

std::string words_of(const AlgorithmEntry& entry) {
  return std::string(entry.name) + " " + std::string(to_string(entry.operation));
}

int bits_up_to(int ranks) {
  int bits = 0;
  for (int step = 0; step < ranks; ++step) bits += std::popcount(static_cast<unsigned>(step));
  return bits;
}

/// For any number of ranks from 2 on. Rounds, messages, sent, read, written, roundings.
std::map<std::string, Cost> costs_of_any(int ranks) {
  const double p = ranks;
  const auto others = static_cast<std::size_t>(ranks - 1);
  const int lower = static_cast<int>(std::bit_width(static_cast<unsigned>(ranks))) - 1;  // of log2 p
  const int upper = static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
  const auto children = static_cast<std::size_t>(upper);
  const int half = 1 << (upper - 1);  // what the root's largest child has below it, if there are so many
  const auto below = static_cast<std::size_t>(std::max(ranks - half, half / 2));
  const double turned = 2 * p + 2 * bits_up_to(ranks);
  return {
      {"one_shot barrier", {1, 0, 0, 0, 0, 0}},
      {"one_shot all_reduce", {1, 0, 0, p + 1, 2, 1}},
      {"one_shot reduce", {1, 0, 0, p + 1, 2, 1}},
      {"one_shot reduce_scatter", {1, 0, 0, 2 * p, p + 1, 1}},
      {"one_shot broadcast", {1, 0, 0, 1, 1, 0}},
      {"one_shot scatter", {1, 0, 0, p + 1, p + 1, 0}},
      {"one_shot gather", {1, 0, 0, p + 1, p + 1, 0}},
      {"one_shot all_gather", {1, 0, 0, p + 1, p + 1, 0}},
      {"one_shot all_to_all", {1, 0, 0, 2 * p, 2 * p, 0}},

      {"arena all_reduce", {2, 0, 0, 1, 1, 1}},
      {"arena reduce", {2, 0, 0, 1, 1 / p, 1}},
      {"arena reduce_scatter", {2, 0, 0, p, 1, 1}},
      {"arena broadcast", {2, 0, 0, 1 - 1 / p, 1 - 1 / p, 0}},
      {"arena scatter", {2, 0, 0, 2 - 1 / p, 2 - 1 / p, 0}},
      {"arena gather", {2, 0, 0, 2 - 1 / p, 2 - 1 / p, 0}},
      {"arena all_gather", {2, 0, 0, p, p, 0}},
      {"arena all_to_all", {2, 0, 0, p, p, 0}},

      // Two nodes where they can have as many ranks each, one otherwise.
      {"numa all_reduce",
       ranks % 2 == 0 ? Cost{4, 0, 0, 2, 1 + 2 / p, ranks == 2 ? 1 : 2} : Cost{3, 0, 0, 2 - 1 / p, 1, 1}},
      {"numa broadcast", {3, 0, 0, 1, 1, 0}},
      {"numa all_gather", {3, 0, 0, p, p, 0}},

      {"staged all_reduce", {4, 0, 0, 3 - 2 / p, 2, 1}},
      {"staged reduce", {4, 0, 0, 3 - 2 / p, 2 - 1 / p, 1}},
      {"staged reduce_scatter", {3, 0, 0, 2 * p - 1, p, 1}},
      {"staged broadcast", {3, 0, 0, 1, 1, 0}},
      {"staged scatter", {3, 0, 0, p, p, 0}},
      {"staged gather", {3, 0, 0, p, p, 0}},
      {"staged all_gather", {3, 0, 0, p + 1, p + 1, 0}},
      {"staged all_to_all", {3, 0, 0, 2 * p - 1, 2 * p - 1, 0}},

      {"tree barrier", {2 * lower, children, 0, 0, 0, 0}},
      {"tree all_reduce", {2 * lower, children, 1.0 * upper, upper + 1.0, 1, lower}},
      {"tree reduce", {lower, 1, 1, upper + 1.0, 1, lower}},
      {"tree broadcast", {lower, children, 1.0 * upper, 0, 0, 0}},
      {"tree scatter", {lower, others, p - 1, 1, 1, 0}},
      {"tree gather", {lower, below, static_cast<double>(below), 1, 1, 0}},

      {"ring all_reduce",
       {2 * (ranks - 1), 2 * others, 2 * (p - 1) / p, 2 * (p - 1) / p, (p - 1) / p, ranks - 1}},
      {"ring reduce", {ranks, others + 1, 1, 2 * (p - 1) / p, (p - 1) / p, ranks - 1}},
      {"ring reduce_scatter", {ranks - 1, others, p - 1, 2 * (p - 1), p - 1, ranks - 1}},
      {"ring all_gather", {ranks - 1, others, p - 1, 1, 1, 0}},

      {"direct reduce_scatter", {1, others, p - 1, p, 1, 1}},
      {"direct scatter", {1, others, p - 1, 1, 1, 0}},
      {"direct gather", {1, 1, 1, 1, 1, 0}},
      {"scatter_allgather broadcast", {lower + ranks - 1, children + others, 2 * (p - 1) / p, 0, 0, 0}},
      {"bruck all_gather", {upper, children, p - 1, p + 1, p + 1, 0}},
      {"bruck all_to_all", {upper, children, 1.0 * bits_up_to(ranks), turned, turned, 0}},
      {"pairwise all_to_all", {ranks == 2 ? 1 : ranks, others, p - 1, 1, 1, 0}},
  };
}

/// For powers of two, from four on.
std::map<std::string, Cost> costs_of_powers(int ranks) {
  const double p = ranks;
  const int rounds = std::countr_zero(static_cast<unsigned>(ranks));
  const auto messages = static_cast<std::size_t>(rounds);
  return {
      {"recursive_doubling all_reduce", {rounds, messages, 1.0 * rounds, 2.0 * rounds, 1.0 * rounds, rounds}},
      {"halving_doubling all_reduce",
       {2 * rounds, 2 * messages, 2 * (p - 1) / p, 2 * (p - 1) / p, (p - 1) / p, rounds}},
      {"double_tree all_reduce", {3 * rounds, 4, 2, 1.5, 0.5, rounds}},
  };
}

/// For even numbers, from four on: on hosts with two ranks each.
std::map<std::string, Cost> costs_of_pairs(int ranks) {
  const double h = ranks / 2;
  const int hosts = ranks / 2;
  const auto others = static_cast<std::size_t>(hosts - 1);
  const int upper = static_cast<int>(std::bit_width(static_cast<unsigned>(hosts - 1)));
  return {
      {"hierarchical barrier", {2 + upper, static_cast<std::size_t>(upper), 0, 0, 0, 0}},
      {"hierarchical all_reduce", hosts == 2
                                      ? Cost{3, 1, 0.5, 2, 1.5, 2}
                                      : Cost{4, 2 * others, 1 - 1 / h, 2 - 1 / (2 * h), 1 + 1 / (2 * h), 2}},
      {"hierarchical reduce", {hosts + 1, 1, 0.5, 1.5, 0.5, hosts}},
      {"hierarchical reduce_scatter", {3, others, h - 1, 3 * h - 1, h, 2}},
      {"hierarchical broadcast", {hosts + 1, 1, 0.5, 1, 1, 0}},
      {"hierarchical all_gather", {3, others, h - 1, h + 1, h + 1, 0}},
  };
}

void expect_cost(const AlgorithmEntry& entry, int ranks, const Cost& expected) {
  SCOPED_TRACE(words_of(entry) + " on " + std::to_string(ranks) + " ranks: " + cost(entry, ranks));
  const Cost counted = cost_of(entry, ranks);
  EXPECT_EQ(counted.rounds, expected.rounds);
  EXPECT_EQ(counted.messages, expected.messages);
  EXPECT_DOUBLE_EQ(counted.sent, expected.sent);
  EXPECT_DOUBLE_EQ(counted.read, expected.read);
  EXPECT_DOUBLE_EQ(counted.written, expected.written);
  EXPECT_EQ(counted.roundings, expected.roundings);
}

TEST(Cost, IsWhatTheFormulaSays) {
  for (int ranks = 2; ranks <= 17; ++ranks) {
    const auto any = costs_of_any(ranks);
    const auto powers = costs_of_powers(ranks);
    for (const AlgorithmEntry& entry : all_algorithms()) {
      if (!is_seen(entry)) continue;
      if (!is_seen(entry)) continue;
      const std::string name = words_of(entry);
      if (entry.requirement == Requirement::hosts) {
        if (ranks > 2 && ranks % 2 == 0) expect_cost(entry, ranks, costs_of_pairs(ranks).at(name));
        continue;
      }
      ASSERT_TRUE(any.contains(name) || powers.contains(name)) << name << " has no formula";
      if (any.contains(name)) {
        expect_cost(entry, ranks, any.at(name));
      } else if (ranks > 2 && std::has_single_bit(static_cast<unsigned>(ranks))) {
        expect_cost(entry, ranks, powers.at(name));
      }
    }
  }
}

AlgorithmEntry find(const std::string& name) {
  for (const AlgorithmEntry& entry : all_algorithms()) {
    if (!is_seen(entry)) continue;
    if (words_of(entry) == name) return entry;
  }
  throw_invalid_argument("there is no " + name);
}

TEST(Cost, OfPairsIsAMessageMoreWhereRanksAreNoPowerOfTwo) {
  for (const char* name : {"recursive_doubling all_reduce", "halving_doubling all_reduce"}) {
    for (const int ranks : {5, 6, 7, 9, 10, 13, 15, 17}) {
      const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
      const Cost least = costs_of_powers(power).at(name);
      const Cost counted = cost_of(find(name), ranks);
      EXPECT_LE(counted.rounds, least.rounds + 2) << name << ranks;
      EXPECT_LE(counted.messages, least.messages + 1) << name << ranks;
      EXPECT_DOUBLE_EQ(counted.sent, least.sent + 1) << name << ranks;
      EXPECT_EQ(counted.roundings, least.roundings + 1) << name << ranks;
    }
  }
}

TEST(Cost, OfTwoTreesHasBoundsWhereRanksAreNoPowerOfTwo) {
  for (int ranks = 2; ranks <= 26; ++ranks) {
    const Cost counted = cost_of(find("double_tree all_reduce"), ranks);
    const auto levels = static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
    EXPECT_LE(counted.rounds, 4 * levels) << ranks;
    EXPECT_LE(counted.messages, 4U) << ranks;
    EXPECT_LE(counted.sent, 2.0) << ranks;
    EXPECT_EQ(counted.roundings, levels) << ranks;
  }
}

TEST(Cost, IsOneLine) {
  EXPECT_EQ(cost(find("ring all_reduce"), 4),
            "6 rounds; at most, a rank sends 6 messages (1.5 n), reads 1.5 n, writes 0.75 n; "
            "halves are rounded 3 times");
  EXPECT_EQ(cost(find("one_shot barrier"), 4), "1 round");
}

}  // namespace
}  // namespace lockstep::schedule
