#include "lockstep/train/horovod/named_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using namespace test;
using ::testing::HasSubstr;

TEST(NamedTensors, ReduceWithoutTouchingTheirInput) {
  on_ranks(2, [](const Group& group) {
    const NamedCollectives named(group);
    const auto mine = torch::full({2, 3}, group.rank() + 1.0).t();  // not contiguous
    EXPECT_TRUE(torch::equal(all_reduce(named, mine, "a").wait(), torch::full({3, 2}, 1.5)));
    EXPECT_TRUE(torch::equal(mine, torch::full({3, 2}, group.rank() + 1.0)));
    const auto scalar = torch::tensor(std::int64_t{group.rank() + 5});
    EXPECT_EQ(all_reduce(named, scalar, "b", ReduceOp::max).wait().item<std::int64_t>(), 6);
    auto in_place = torch::ones({4});
    all_reduce_(named, in_place, "c", ReduceOp::sum).wait();
    EXPECT_TRUE(torch::equal(in_place, torch::full({4}, 2.0F)));
    std::vector<torch::Tensor> several = {torch::ones({4}), torch::ones({2, 2})};
    all_reduce_grouped_(named, several, "d", ReduceOp::sum, {.prescale = 0.5F}).wait();
    EXPECT_TRUE(torch::equal(several[1], torch::ones({2, 2})));
  });
}

TEST(NamedTensors, KeepThoseThatAreReducedTogether) {
  on_ranks(2, [](const Group& group) {
    const NamedCollectives named(group);
    const torch::Tensor first = torch::ones({4}), second = torch::ones({2});
    Work work = all_reduce_grouped_(named, {first, second}, "together", ReduceOp::sum);
    for (const torch::Tensor& tensor : {first, second})
      EXPECT_GT(tensor.use_count(), 2U);  // with this loop's
    work.wait();
    EXPECT_EQ(first.sum().item<float>(), 8);
  });
}

TEST(NamedTensors, GatherSplitAndShareRows) {
  on_ranks(2, [](const Group& group) {
    const NamedCollectives named(group);
    const int rank = group.rank();
    const auto mine = torch::full({rank + 1, 2}, rank, torch::kInt64);
    const auto all = all_gather(named, mine, "gather").wait();
    EXPECT_TRUE(torch::equal(all, torch::tensor({{0, 0}, {1, 1}, {1, 1}}, torch::kInt64)));

    const auto rows = torch::arange(3, torch::kInt64).unsqueeze(1) + 10 * rank;
    const auto exchanged = all_to_all(named, rows, "exchange", {1, 2}).wait();
    EXPECT_TRUE(torch::equal(exchanged.flatten(), rank == 0 ? torch::tensor({0, 10}, torch::kInt64)
                                                            : torch::tensor({1, 2, 11, 12}, torch::kInt64)));

    const auto share = reduce_scatter(named, torch::arange(6.0).view({3, 2}), "share", ReduceOp::sum).wait();
    EXPECT_TRUE(torch::equal(
        share, rank == 0 ? torch::tensor({{0.0F, 2.0F}, {4.0F, 6.0F}}) : torch::tensor({{8.0F, 10.0F}})));

    auto value = torch::full({2}, rank, torch::kBool);
    EXPECT_TRUE(broadcast(named, value, 1, "truth").wait().all().item<bool>());
  });
}

TEST(NamedTensors, NameShapesThatDiffer) {
  on_ranks(2, [](const Group& group) {
    const NamedCollectives named(group);
    // As many elements, but not the same shape.
    const auto mine = group.rank() == 0 ? torch::ones({2, 3}) : torch::ones({3, 2});
    try {
      (void)all_reduce(named, mine, "weight").wait();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_THAT(error.what(), HasSubstr("all_reduce \"weight\" (average of f32 [2, 3]) on rank 0"));
    }
  });
}

TEST(NamedTensors, RefuseWhatCannotBe) {
  const NamedCollectives named{Group()};
  const auto fault = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(fault([&] { (void)all_gather(named, torch::tensor(1.0F), "a").wait(); }),
              HasSubstr("tensor a has no dimension to be split or joined along"));
  EXPECT_THAT(fault([&] { (void)all_to_all(named, torch::ones({3}), "a", {2}).wait(); }),
              HasSubstr("tensor a has 3 rows for 1 ranks; the splits are 1, of 2 rows together"));
  EXPECT_THAT(fault([&] {
                all_reduce_(named, torch::ones({2, 3}).t(), "a").wait();
              }),
              HasSubstr("contiguous"));
  EXPECT_THAT(fault([&] {
                all_reduce_grouped_(named, {torch::ones(1), torch::ones(1, torch::kHalf)}, "a").wait();
              }),
              HasSubstr("tensors of f32 and f16; one call is for one type"));
}

}  // namespace
}  // namespace lockstep
