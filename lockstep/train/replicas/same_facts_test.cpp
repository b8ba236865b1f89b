#include "lockstep/train/replicas/same_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

/// What all ranks throw if rank 1 says `other` where the rest say `facts`.
std::string difference(const std::vector<Fact>& facts, const std::vector<Fact>& other) {
  const auto endings = test::run_ranks(3, [&](const Group& group) {
    require_same_facts(group, group.rank() == 1 ? other : facts, "Do better.");
  });
  for (const auto& ending : endings) {
    EXPECT_FALSE(ending.ok);
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_EQ(ending.peer, 1);
    EXPECT_EQ(ending.text, endings[0].text);
  }
  return endings[0].text;
}

TEST(SameFacts, PassWhereTheyAreTheSame) {
  test::on_ranks(3, [](const Group& group) {
    require_same_facts(group, std::vector<Fact>{{"a", "1"}, {"b", ""}}, "");
    require_same_facts(group, {}, "");
  });
}

TEST(SameFacts, NameBothRanksAndBothValues) {
  EXPECT_EQ(difference({{"parameter fc.weight", "f32 [10, 64]"}}, {{"parameter fc.weight", "f32 [10, 32]"}}),
            "rank 1's parameter fc.weight is f32 [10, 32], rank 0's is f32 [10, 64]. Do better.");
}

TEST(SameFacts, NameWhatOneRankDoesNotHave) {
  EXPECT_THAT(difference({{"a", "1"}, {"b", "2"}}, {{"a", "1"}}),
              HasSubstr("rank 1 has no b, rank 0's is 2."));
  EXPECT_THAT(difference({{"a", "1"}}, {{"a", "1"}, {"b", "2"}}),
              HasSubstr("rank 1's b is 2, rank 0 has none."));
  EXPECT_THAT(difference({{"a", "1"}}, {}), HasSubstr("rank 1 has no a"));
}

TEST(SameFacts, NameAnotherOrder) {
  EXPECT_THAT(difference({{"a", "1"}, {"b", "1"}}, {{"b", "1"}, {"a", "1"}}),
              HasSubstr("rank 1 has b where rank 0 has a, in another order"));
}

TEST(SameFacts, CountWhatTheyDoNotList) {
  std::vector<Fact> facts;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) facts.push_back({name, "1"});
  EXPECT_THAT(difference(facts, {}), HasSubstr("rank 1 has no c, rank 0's is 1; and 4 more differences"));
}

TEST(Facts, SayWhatMakesTwoModelsDifferent) {
  torch::nn::Linear frozen(2, 3);
  frozen->weight.set_requires_grad(false);
  const auto facts = facts_of(tensors_of(*frozen));
  ASSERT_EQ(facts.size(), 2U);
  EXPECT_EQ(facts[0].name, "parameter weight");
  EXPECT_EQ(facts[0].value, "f32 [3, 2] (frozen)");
  EXPECT_EQ(facts[1].value, "f32 [3]");
  const auto norm = facts_of(tensors_of(*torch::nn::BatchNorm1d(4)));
  EXPECT_EQ(norm.back().name, "buffer num_batches_tracked");
  EXPECT_EQ(norm.back().value, "i64 []");
}

}  // namespace
}  // namespace lockstep
