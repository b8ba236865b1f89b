#include "lockstep/train/tensor/tensor_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

TEST(TensorCollectives, ReduceEveryTypeThatHasASum) {
  test::on_ranks(3, [](const Group& group) {
    for (const auto type :
         {torch::kUInt8, torch::kInt8, torch::kInt16, torch::kInt32, torch::kInt64, torch::kFloat16,
          torch::kBFloat16, torch::kFloat32, torch::kFloat64, torch::kComplexFloat, torch::kComplexDouble}) {
      const auto tensor = torch::full({2, 3}, group.rank() + 1, type);
      all_reduce(group, tensor).wait();
      EXPECT_TRUE(torch::equal(tensor, torch::full({2, 3}, 6, type))) << type;
    }
  });
}

TEST(TensorCollectives, ReduceUnsignedIntegersAndBools) {
  test::on_ranks(2, [](const Group& group) {
    for (const auto type : {torch::kUInt16, torch::kUInt32, torch::kUInt64}) {  // libtorch cannot add these
      const auto tensor = torch::full({3}, group.rank() + 1, torch::kInt64).to(type);
      all_reduce(group, tensor).wait();
      EXPECT_TRUE(tensor.to(torch::kInt64).eq(3).all().item<bool>()) << type;
    }
    const auto any = torch::full({3}, group.rank() == 1, torch::kBool);
    all_reduce(group, any).wait();
    EXPECT_TRUE(any.all().item<bool>());
  });
}

TEST(TensorCollectives, BroadcastAnyType) {
  test::on_ranks(2, [](const Group& group) {
    const auto tensor = torch::full({5}, group.rank() == 1, torch::kBool);
    broadcast(group, tensor, 1).wait();
    EXPECT_TRUE(tensor.all().item<bool>());
  });
}

TEST(TensorCollectives, GatherAnyType) {
  test::on_ranks(3, [](const Group& group) {
    const auto mine = torch::full({2}, group.rank(), torch::kInt16);
    const auto all = torch::empty({3, 2}, torch::kInt16);
    all_gather(group, mine, all).wait();
    for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(all[rank].eq(rank).all().item<bool>());
  });
}

TEST(TensorCollectives, SendAndReceiveWithoutChangingWhatIsSent) {
  test::on_ranks(2, [](const Group& group) {
    const auto tensor = torch::full({5}, group.rank() + 7, torch::kUInt8);
    const auto before = tensor._version();
    if (group.rank() == 0) {
      send(group, tensor, 1).wait();
      EXPECT_EQ(tensor._version(), before);
    } else {
      recv(group, tensor, 0).wait();
      EXPECT_TRUE(tensor.eq(7).all().item<bool>());
      EXPECT_GT(tensor._version(), before);
    }
  });
}

TEST(TensorCollectives, TellAutogradThatTheTensorChanged) {
  const auto tensor = torch::ones({2});
  const auto before = tensor._version();
  all_reduce(Group(), tensor).wait();
  EXPECT_GT(tensor._version(), before);
}

TEST(TensorCollectives, SayWhatTheyCannotMove) {
  const Group alone;
  EXPECT_THAT(refusal([&] { all_reduce(alone, torch::Tensor()).wait(); }), HasSubstr("undefined"));
  EXPECT_THAT(refusal([&] {
                all_reduce(alone, torch::ones({4, 4}).t()).wait();
              }),
              HasSubstr("f32 [4, 4] and not contiguous"));
  EXPECT_THAT(refusal([&] { all_reduce(alone, torch::empty({2}, torch::kComplexHalf)).wait(); }),
              HasSubstr("unsupported: all_reduce's tensor is ComplexHalf [2]"));
  EXPECT_THAT(refusal([&] { broadcast(alone, torch::ones({2}, torch::kMeta), 0).wait(); }),
              HasSubstr("broadcast's tensor is f32 [2] on meta, which has a shape and no elements"));
  EXPECT_THAT(refusal([&] { broadcast(alone, torch::ones({2}).to_sparse(), 0).wait(); }),
              HasSubstr("only dense tensors"));
  EXPECT_THAT(refusal([&] { all_gather(alone, torch::Tensor(), torch::ones({2})).wait(); }),
              HasSubstr("all_gather's input is an undefined tensor"));
  EXPECT_THAT(refusal([&] { all_gather(alone, torch::ones({2}), torch::ones({2}, torch::kInt32)).wait(); }),
              HasSubstr("all_gather's input is f32 [2], its output i32 [2]; they need the same type"));
  EXPECT_THAT(refusal([&] {
                send(alone, torch::ones({4, 4}).t(), 0).wait();
              }),
              HasSubstr("not contiguous; pass tensor.contiguous()"));
}

}  // namespace
}  // namespace lockstep
