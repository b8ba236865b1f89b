#include "lockstep/train/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "lockstep/train/ranks_test.h"

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

TEST(DistributedSampler, RefusesTheStateOfAnotherSet) {
  DistributedSampler sampler(20, Group()), other(21, Group());
  EXPECT_THROW(restore(other, archived(sampler)), Error);
  torch::serialize::OutputArchive empty;
  std::ostringstream out;
  empty.save_to(out);
  EXPECT_THROW(restore(other, out.str()), Error);
}

TEST(DistributedSampler, RefusesASetWithoutSamples) { EXPECT_THROW(DistributedSampler(0, Group()), Error); }

}  // namespace
}  // namespace lockstep
