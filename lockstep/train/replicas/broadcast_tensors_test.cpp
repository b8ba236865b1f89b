#include "lockstep/train/replicas/broadcast_tensors.h"

#include <gtest/gtest.h>

#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

TEST(BroadcastTensors, GivesEverybodyWhatRank0Has) {
  test::on_ranks(3, [](const Group& group) {
    const int mine = group.rank() + 1;
    const std::vector<NamedTensor> tensors = {
        {"large", torch::full({3, 1 << 20}, mine, torch::kFloat32), true},  // more than one piece
        {"transposed", torch::full({4, 2}, mine, torch::kFloat64).t(), true},
        {"flags", torch::full({3}, mine == 1, torch::kBool), false},
        {"none", torch::empty({0, 4}), false},
        {"scalar", torch::tensor(std::int64_t{mine}), false},
    };
    broadcast_tensors(group, tensors);
    EXPECT_TRUE(torch::equal(tensors[0].tensor, torch::ones({3, 1 << 20})));
    EXPECT_TRUE(torch::equal(tensors[1].tensor, torch::ones({2, 4}, torch::kFloat64)));
    EXPECT_FALSE(tensors[1].tensor.is_contiguous());
    EXPECT_TRUE(tensors[2].tensor.all().item<bool>());
    EXPECT_EQ(tensors[4].tensor.item<std::int64_t>(), 1);
  });
}

TEST(BroadcastText, GivesEverybodyWhatRank0Says) {
  test::on_ranks(2, [](const Group& group) {
    EXPECT_EQ(broadcast_text(group, group.rank() == 0 ? "long enough to be interesting" : "x"),
              "long enough to be interesting");
    EXPECT_EQ(broadcast_text(group, group.rank() == 0 ? "" : "x"), "");
  });
}

}  // namespace
}  // namespace lockstep
