#include "lockstep/train/datasets/sampler.h"
#include "lockstep/base/failure_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

std::vector<std::size_t> whole_epoch(DistributedSampler& sampler, std::size_t batch_size = 3) {
  std::vector<std::size_t> all;
  while (const auto batch = sampler.next(batch_size)) all.insert(all.end(), batch->begin(), batch->end());
  return all;
}

TEST(DistributedSampler, GivesEverySampleToExactlyOneRank) {
  std::vector<std::vector<std::size_t>> shards(3);
  test::on_ranks(3, [&](const Group& group) {
    DistributedSampler sampler(12, group);
    shards[static_cast<std::size_t>(group.rank())] = whole_epoch(sampler);
  });
  std::multiset<std::size_t> all;
  for (const auto& shard : shards) {
    EXPECT_EQ(shard.size(), 4U);
    all.insert(shard.begin(), shard.end());
  }
  EXPECT_THAT(all, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

TEST(DistributedSampler, GivesAllRanksAsManySamplesWhereTheyDoNotDivide) {
  test::on_ranks(4, [](const Group& group) {
    DistributedSampler padded(10, group), dropped(10, group, {.drop_last = true});
    EXPECT_EQ(whole_epoch(padded).size(), 3U);
    EXPECT_EQ(whole_epoch(dropped).size(), 2U);
  });
}

TEST(DistributedSampler, KeepsTheSetsOrderWithoutShuffle) {
  DistributedSampler sampler(4, Group(), {.shuffle = false});
  EXPECT_THAT(whole_epoch(sampler), ElementsAre(0, 1, 2, 3));
}

TEST(DistributedSampler, ChangesItsOrderWithTheEpochOnly) {
  DistributedSampler sampler(100, Group());
  const auto first = whole_epoch(sampler);
  sampler.reset();
  EXPECT_EQ(whole_epoch(sampler), first);
  sampler.set_epoch(1);
  sampler.reset();
  EXPECT_NE(whole_epoch(sampler), first);
}

TEST(DistributedSampler, SharesItsStateWithItsCopies) {
  DistributedSampler sampler(100, Group());
  DistributedSampler copy = sampler;
  const auto first = whole_epoch(copy);
  sampler.set_epoch(7);
  copy.reset();
  EXPECT_NE(whole_epoch(copy), first);
}

TEST(DistributedSampler, GoesToTheBeginningOfAnotherEpochAndStaysInItsOwn) {
  DistributedSampler sampler(10, Group());
  (void)sampler.next(4);
  sampler.set_epoch(0);
  EXPECT_EQ(sampler.index(), 4U);
  EXPECT_EQ(sampler.rest().size(), 6U);
  sampler.set_epoch(1);
  EXPECT_EQ(sampler.index(), 0U);
  const auto order = sampler.rest();
  EXPECT_EQ(whole_epoch(sampler), order);
  EXPECT_TRUE(sampler.rest().empty());
}

TEST(DistributedSampler, GoesToWhereACheckpointSays) {
  DistributedSampler sampler(20, Group(), {.seed = 5}), resumed(20, Group(), {.seed = 5});
  sampler.set_epoch(3);
  (void)sampler.next(7);
  resumed.seek(sampler.epoch(), sampler.index());
  EXPECT_EQ(whole_epoch(resumed), whole_epoch(sampler));
  resumed.seek(4, 20);
  EXPECT_EQ(resumed.next(1), std::nullopt);
  try {
    resumed.seek(0, 21);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(), "there is no sample 21 to go to; a rank has 20 in an epoch");
  }
  EXPECT_EQ(resumed.epoch(), 4U) << "where it was";
}

TEST(DistributedSampler, DrawsForEachRankFromTheWholeSet) {
  std::vector<std::vector<std::size_t>> drawn(4);
  test::on_ranks(4, [&](const Group& group) {
    DistributedSampler sampler(100, group, {.sharing = Sharing::random});
    auto& mine = drawn[static_cast<std::size_t>(group.rank())];
    mine = whole_epoch(sampler);
    EXPECT_EQ(mine.size(), 25U);
    EXPECT_EQ(std::set<std::size_t>(mine.begin(), mine.end()).size(), 25U);
  });
  std::set<std::size_t> all;
  for (const auto& mine : drawn) all.insert(mine.begin(), mine.end());
  EXPECT_GT(all.size(), 25U) << "ranks draw by seeds of their own";
  EXPECT_LT(all.size(), 100U) << "and not from each other's shards";
}

struct Numbers : torch::data::datasets::Dataset<Numbers> {
  torch::data::Example<> get(std::size_t index) override {
    const auto number = torch::tensor(static_cast<std::int64_t>(index));
    return {number, number};
  }
  std::optional<std::size_t> size() const override { return 10; }
};

TEST(DistributedSampler, ReachesTheCopyInADataLoaderBySetEpoch) {
  DistributedSampler sampler(10, Group());
  auto loader = torch::data::make_data_loader(Numbers().map(torch::data::transforms::Stack<>()), sampler, 4);
  const auto epoch = [&](std::uint64_t number) {
    sampler.set_epoch(number);
    std::vector<std::int64_t> seen;
    for (const auto& batch : *loader) {
      for (std::int64_t i = 0; i < batch.data.size(0); ++i)
        seen.push_back(batch.data[i].item<std::int64_t>());
    }
    return seen;
  };
  const auto first = epoch(0);
  EXPECT_THAT(first, testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_NE(epoch(1), first);
  EXPECT_EQ(epoch(0), first);
}

std::string archived(const DistributedSampler& sampler) {
  torch::serialize::OutputArchive archive;
  sampler.save(archive);
  std::ostringstream out;
  archive.save_to(out);
  return out.str();
}

void restore(DistributedSampler& sampler, const std::string& text) {
  torch::serialize::InputArchive archive;
  archive.load_from(text.data(), text.size());
  sampler.load(archive);
}

TEST(DistributedSampler, GoesOnWhereItWasSaved) {
  DistributedSampler sampler(20, Group(), {.seed = 5});
  sampler.set_epoch(3);
  sampler.reset();
  (void)sampler.next(7);
  const std::string saved = archived(sampler);
  const auto rest = whole_epoch(sampler);
  DistributedSampler other(20, Group());
  restore(other, saved);
  EXPECT_EQ(other.index(), 7U);
  EXPECT_EQ(other.epoch(), 3U);
  EXPECT_EQ(whole_epoch(other), rest);
}

/// The samples of one epoch of a data loader, after `sampler` was told where it is.
std::vector<std::int64_t> samples_of_epoch(DistributedSampler& sampler, std::size_t batch_size = 2) {
  auto loader =
      torch::data::make_data_loader(Numbers().map(torch::data::transforms::Stack<>()), sampler, batch_size);
  std::vector<std::int64_t> seen;
  for (const auto& batch : *loader) {
    for (std::int64_t i = 0; i < batch.data.size(0); ++i) seen.push_back(batch.data[i].item<std::int64_t>());
  }
  return seen;
}

TEST(DistributedSampler, ResumesInTheMiddleOfADataLoadersEpoch) {
  DistributedSampler sampler(10, Group(), {.seed = 5});
  sampler.set_epoch(3);
  const auto whole = samples_of_epoch(sampler);
  sampler.reset();
  (void)sampler.next(4);
  const SamplerPosition middle = sampler.position();
  EXPECT_EQ(middle, (SamplerPosition{.samples = 10, .seed = 5, .epoch = 3, .consumed = 4}));
  DistributedSampler other(10, Group());
  other.resume(middle);
  other.set_epoch(3);  // as programs do at the beginning of each
  EXPECT_EQ(other.index(), 4U);
  EXPECT_EQ(samples_of_epoch(other), std::vector<std::int64_t>(whole.begin() + 4, whole.end()));
  EXPECT_EQ(samples_of_epoch(other), whole) << "the epoch after it begins at its beginning";
  other.resume(middle);
  other.set_epoch(4);
  EXPECT_EQ(samples_of_epoch(other).size(), 10U) << "another epoch does, too";
  other.resume({.samples = 10, .seed = 5, .epoch = 3, .consumed = 10});
  EXPECT_THAT(samples_of_epoch(other), testing::IsEmpty());
}

TEST(DistributedSampler, ResumesOnAnotherNumberOfRanks) {
  SamplerPosition middle;
  std::vector<std::multiset<std::size_t>> seen(3);
  test::on_ranks(2, [&](const Group& group) {
    DistributedSampler sampler(24, group);
    (void)sampler.next(3);
    if (group.rank() == 0) middle = sampler.position();
  });
  EXPECT_EQ(middle.consumed, 6U);
  DistributedSampler alone(24, Group());
  alone.resume(middle);
  const auto rest = whole_epoch(alone);
  EXPECT_EQ(rest.size(), 18U);
  test::on_ranks(3, [&](const Group& group) {
    DistributedSampler sampler(24, group);
    sampler.resume(middle);
    const auto indices = whole_epoch(sampler);
    EXPECT_EQ(indices.size(), 6U);
    seen[static_cast<std::size_t>(group.rank())].insert(indices.begin(), indices.end());
  });
  std::multiset<std::size_t> all;
  for (const auto& some : seen) all.insert(some.begin(), some.end());
  EXPECT_EQ(all, std::multiset<std::size_t>(rest.begin(), rest.end()));
}

TEST(DistributedSampler, HasNotBegunAnEpochThatWasOnlySet) {
  DistributedSampler sampler(10, Group());
  (void)sampler.next(4);
  sampler.set_epoch(1);
  EXPECT_EQ(sampler.position().consumed, 0U);
  EXPECT_EQ(sampler.position().epoch, 1U);
}

TEST(DistributedSampler, RefusesAPositionInAnotherSet) {
  DistributedSampler sampler(20, Group());
  try {
    sampler.resume({.samples = 21});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(),
                testing::HasSubstr("one in a set of 21 samples, this sampler's set has 20; resume with"));
  }
}

TEST(DistributedSampler, LoadsWhatAnotherNumberOfRanksHasSaved) {
  std::string saved;
  test::on_ranks(2, [&](const Group& group) {
    DistributedSampler sampler(20, group, {.seed = 5});
    (void)sampler.next(7);
    if (group.rank() == 0) saved = archived(sampler);
  });
  DistributedSampler sampler(20, Group());
  restore(sampler, saved);
  EXPECT_EQ(sampler.index(), 14U);
  torch::serialize::OutputArchive archive;  // from before archives had a number of ranks
  for (const auto& [name, number] :
       std::map<std::string, std::int64_t>{{"samples", 20}, {"seed", 5}, {"epoch", 0}, {"position", 7}})
    archive.write(name, torch::tensor(number), /*is_buffer=*/true);
  std::ostringstream out;
  archive.save_to(out);
  restore(sampler, out.str());
  EXPECT_EQ(sampler.index(), 7U);
}

TEST(DistributedSampler, RefusesTheStateOfAnotherSet) {
  DistributedSampler sampler(20, Group()), other(21, Group());
  EXPECT_THROW(restore(other, archived(sampler)), Error);
  torch::serialize::OutputArchive empty;
  std::ostringstream out;
  empty.save_to(out);
  EXPECT_THROW(restore(other, out.str()), Error);
}

TEST(DistributedSampler, RefusesASetWithoutSamples) {
  EXPECT_EQ(test::failure_of([] { const DistributedSampler sampler(0, Group()); }),
            "cannot shard a data set without samples; check the path to the data");
}

TEST(DistributedSampler, RefusesASetThatIsSmallerThanTheGroup) {
  test::on_ranks(3, [](const Group& group) {
    EXPECT_EQ(test::failure_of([&] { const DistributedSampler sampler(2, group); }),
              "a data set of 2 samples is too small for 3 ranks; use at most 2 ranks, or more data");
    DistributedSampler sampler(3, group);
    EXPECT_THROW(sampler.reset(2), Error);
    EXPECT_EQ(sampler.size(), 1U) << "of the set that it had";
  });
}

TEST(DistributedSampler, RefusesBatchesOfNothing) {
  DistributedSampler sampler(3, Group());
  EXPECT_EQ(test::failure_of([&] { (void)sampler.next(0); }), "expected a batch size of at least 1, found 0");
}

}  // namespace
}  // namespace lockstep
