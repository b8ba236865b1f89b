#include "lockstep/data/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Indices = std::vector<std::size_t>;

/// What all ranks together see, in the permutation's order.
Indices woven(Sharding sharding, std::uint64_t epoch) {
  std::vector<Indices> shards;
  for (sharding.rank = 0; sharding.rank < sharding.ranks; ++sharding.rank) {
    shards.push_back(shard_indices(sharding, epoch));
  }
  Indices all;
  for (std::size_t i = 0; i < shards[0].size(); ++i) {
    for (const Indices& shard : shards) all.push_back(shard.at(i));
  }
  return all;
}

Indices permutation(std::size_t samples, std::uint64_t seed, std::uint64_t epoch) {
  return shard_indices({.samples = samples, .seed = seed}, epoch);
}

Indices in_order(std::size_t samples) {
  Indices order(samples);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

bool is_permutation_of_all(const Indices& indices) {
  Indices sorted = indices;
  std::sort(sorted.begin(), sorted.end());
  return sorted == in_order(indices.size());
}

/// As many samples as ranks, or more.
template <class Check>
void for_every_size(Check check) {
  for (std::size_t samples = 1; samples <= 50; ++samples) {
    for (int ranks = 1; ranks <= 8 && static_cast<std::size_t>(ranks) <= samples; ++ranks) {
      SCOPED_TRACE(std::to_string(samples) + " samples, " + std::to_string(ranks) + " ranks");
      check(Sharding{.samples = samples, .ranks = ranks, .seed = 7});
    }
  }
}

TEST(Sampling, EveryRankHasAsManySamples) {
  for_every_size([](Sharding sharding) {
    const auto ranks = static_cast<std::size_t>(sharding.ranks);
    for (sharding.rank = 0; sharding.rank < sharding.ranks; ++sharding.rank) {
      EXPECT_EQ(shard_size(sharding), (sharding.samples + ranks - 1) / ranks);
      EXPECT_EQ(shard_indices(sharding, 1).size(), shard_size(sharding));
    }
  });
}

TEST(Sampling, ShardsArePartsOfOnePermutationRepeatedFromItsStart) {
  for_every_size([](const Sharding& sharding) {
    const Indices order = permutation(sharding.samples, sharding.seed, 3);
    EXPECT_TRUE(is_permutation_of_all(order));
    const Indices all = woven(sharding, 3);
    ASSERT_GE(all.size(), order.size());
    ASSERT_LT(all.size(), order.size() + static_cast<std::size_t>(sharding.ranks));
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], order[i % order.size()]);
  });
}

TEST(Sampling, DropLastLeavesTheTailOut) {
  for_every_size([](Sharding sharding) {
    sharding.drop_last = true;
    const auto ranks = static_cast<std::size_t>(sharding.ranks);
    EXPECT_EQ(shard_size(sharding), sharding.samples / ranks);
    Indices order = permutation(sharding.samples, sharding.seed, 3);
    order.resize(order.size() - order.size() % ranks);
    EXPECT_EQ(woven(sharding, 3), order);
  });
}

TEST(Sampling, WithoutShuffleEveryEpochHasTheSetsOrder) {
  const Sharding sharding{.samples = 10, .rank = 1, .ranks = 4, .seed = 5, .shuffle = false};
  EXPECT_EQ(shard_indices(sharding, 0), (Indices{1, 5, 9}));
  EXPECT_EQ(shard_indices(sharding, 9), (Indices{1, 5, 9}));
}

TEST(Sampling, EpochsAndSeedsHaveOrdersOfTheirOwn) {
  std::set<Indices> orders;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    for (std::uint64_t epoch = 0; epoch < 30; ++epoch) orders.insert(permutation(100, seed, epoch));
  }
  EXPECT_EQ(orders.size(), 900u);
}

TEST(Sampling, RandomSharingGivesEachRankAsManyOfTheWholeSetAndNoneTwice) {
  for_every_size([](Sharding sharding) {
    const Sharding shards = sharding;
    sharding.sharing = Sharing::random;
    for (sharding.rank = 0; sharding.rank < sharding.ranks; ++sharding.rank) {
      const Indices drawn = shard_indices(sharding, 3);
      EXPECT_EQ(drawn.size(), shard_size(shards));
      EXPECT_EQ(std::set<std::size_t>(drawn.begin(), drawn.end()).size(), drawn.size());
      EXPECT_LT(*std::max_element(drawn.begin(), drawn.end()), sharding.samples);
    }
  });
}

TEST(Sampling, RandomSharingGivesRanksEpochsAndSeedsOrdersOfTheirOwn) {
  std::set<Indices> orders;
  for (int rank = 0; rank < 10; ++rank) {
    for (std::uint64_t epoch = 0; epoch < 10; ++epoch) {
      for (std::uint64_t seed = 0; seed < 10; ++seed) {
        orders.insert(shard_indices(
            {.samples = 1000, .rank = rank, .ranks = 10, .seed = seed, .sharing = Sharing::random}, epoch));
      }
    }
  }
  EXPECT_EQ(orders.size(), 1000u);
}

TEST(Sampling, RandomSharingReachesEverySampleInTime) {
  std::vector<int> counts(40);
  for (std::uint64_t epoch = 0; epoch < 4000; ++epoch) {
    for (const std::size_t index :
         shard_indices({.samples = 40, .rank = 1, .ranks = 4, .sharing = Sharing::random}, epoch)) {
      ++counts[index];
    }
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);  // a standard deviation is 27
}

// Computed by another program from the description in sampling.h. If these change, runs that resume from a
// checkpoint train on other batches than they would have: do not adapt the values.
TEST(Sampling, ThePermutationNeverChanges) {
  EXPECT_EQ(permutation(10, 0, 0), (Indices{4, 7, 0, 5, 9, 3, 6, 2, 8, 1}));
  EXPECT_EQ(permutation(10, 0, 1), (Indices{4, 3, 6, 2, 8, 0, 9, 7, 1, 5}));
  EXPECT_EQ(permutation(10, 1, 0), (Indices{1, 9, 0, 7, 4, 2, 5, 3, 8, 6}));
  EXPECT_EQ(permutation(16, ~std::uint64_t{0}, 7),
            (Indices{10, 9, 15, 6, 4, 7, 0, 14, 12, 8, 11, 5, 1, 13, 3, 2}));
  std::uint64_t fnv = 0xcbf29ce484222325;
  for (const std::size_t index : permutation(60000, 42, 3)) fnv = (fnv ^ index) * 0x100000001b3;
  EXPECT_EQ(fnv, 0x840ff415b2219f85);
}

TEST(Sampling, WhatRanksDrawNeverChanges) {
  const auto drawn_by = [](int rank) {
    return shard_indices({.samples = 10, .rank = rank, .ranks = 3, .seed = 5, .sharing = Sharing::random}, 2);
  };
  EXPECT_EQ(drawn_by(0), (Indices{6, 2, 3, 1}));
  EXPECT_EQ(drawn_by(1), (Indices{5, 0, 9, 1}));
  EXPECT_EQ(drawn_by(2), (Indices{0, 1, 4, 5}));
}

TEST(Sampling, AllOrdersAreAboutAsLikely) {
  std::map<Indices, int> counts;
  for (std::uint64_t epoch = 0; epoch < 24000; ++epoch) ++counts[permutation(4, 11, epoch)];
  ASSERT_EQ(counts.size(), 24u);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 150);  // a standard deviation is 31
}

TEST(Sampling, EveryPlaceIsAboutAsLikelyForASample) {
  std::vector<int> counts(50);
  for (std::uint64_t seed = 0; seed < 50000; ++seed) {
    const Indices order = permutation(50, seed, 0);
    ++counts[static_cast<std::size_t>(std::find(order.begin(), order.end(), std::size_t{0}) - order.begin())];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
}

std::string refusal(const Sharding& sharding) {
  try {
    static_cast<void>(shard_indices(sharding, 0));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(Sampling, SharesThatCannotBeAreRefused) {
  EXPECT_EQ(refusal({.samples = 0}), "cannot shard a data set without samples; check the path to the data");
  EXPECT_EQ(refusal({.samples = 5, .ranks = 0}), "cannot shard for 0 ranks; expected at least 1");
  EXPECT_EQ(refusal({.samples = 5, .rank = 2, .ranks = 2}), "there is no shard for rank 2; expected 0 to 1");
  EXPECT_EQ(refusal({.samples = 5, .rank = -1, .ranks = 2}),
            "there is no shard for rank -1; expected 0 to 1");
  for (const bool drop_last : {false, true}) {
    EXPECT_EQ(refusal({.samples = 3, .ranks = 4, .drop_last = drop_last}),
              "a data set of 3 samples is too small for 4 ranks; use at most 3 ranks, or more data");
  }
  EXPECT_EQ(refusal({.samples = 5, .shuffle = false, .sharing = Sharing::random}),
            "Sharing::random draws at random, which shuffle = false forbids; use Sharing::shards");
}

TEST(PositionInShard, IsWhereAllRanksTogetherAre) {
  const auto at = [](int ranks, std::uint64_t consumed, bool drop_last = false) {
    return position_in_shard({.samples = 10, .ranks = ranks, .drop_last = drop_last}, consumed);
  };
  EXPECT_EQ(at(2, 6), 3U);
  EXPECT_EQ(at(1, 6), 6U);
  EXPECT_EQ(at(4, 6), 2U) << "rounded up";
  EXPECT_EQ(at(4, 0), 0U);
  EXPECT_EQ(at(4, 12), 3U) << "two of them repeated";
  EXPECT_EQ(at(4, 12, true), 2U);
  EXPECT_EQ(at(4, ~std::uint64_t{0}), 3U) << "no more than there are";
}

TEST(PositionInShard, LeavesNothingOutAndRepeatsNothingWhereRanksDivideIt) {
  const std::uint64_t consumed = 24;
  std::multiset<std::size_t> seen;
  const auto take = [&](int ranks, std::size_t from, bool to_the_end) {
    for (int rank = 0; rank < ranks; ++rank) {
      const Sharding sharding{.samples = 48, .rank = rank, .ranks = ranks, .seed = 3};
      const auto indices = shard_indices(sharding, 5);
      const std::size_t middle = position_in_shard(sharding, consumed);
      for (std::size_t i = from; i < (to_the_end ? indices.size() : middle); ++i) seen.insert(indices[i]);
    }
  };
  take(2, 0, false);
  take(3, consumed / 3, true);
  EXPECT_EQ(seen.size(), 48U);
  EXPECT_EQ(std::set<std::size_t>(seen.begin(), seen.end()).size(), 48U);
}

}  // namespace
}  // namespace lockstep
