// Tensors whose elements are not in main memory, and how collectives get at them.
#include "lockstep/train/tensor/host_array.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <vector>

#include "lockstep/group/collectives.h"
#include "lockstep/train/tensor/device_ranks_test.h"
#include "lockstep/train/tensor/fake_device_test.h"
#include "lockstep/train/tensor/tensor_collectives.h"

namespace lockstep {
namespace {

using namespace test;
using testing::HasSubstr;

bool is_full_of(const torch::Tensor& tensor, double value) {
  return tensor.cpu().to(torch::kFloat64).eq(value).all().item<bool>();
}

TEST(FakeDevice, HasNoMainMemory) {
  const auto tensor = torch::ones({4}).to(fake_device(1));
  EXPECT_EQ(tensor.device(), fake_device(1));
  EXPECT_TRUE(is_full_of(tensor + 1, 2));
  EXPECT_NE(*static_cast<const float*>(tensor.const_data_ptr()), 1.0F);
}

TEST(HostArray, IsTheTensorItselfWhereItCanBe) {
  const auto tensor = torch::ones({2, 3});
  const auto version = tensor._version();
  const HostArray read(tensor, "it", HostArray::Use::read);
  EXPECT_FALSE(read.is_copy());
  EXPECT_EQ(static_cast<const void*>(read.bytes().data()), tensor.const_data_ptr());
  EXPECT_EQ(tensor._version(), version);
  const HostArray written(tensor, "it", HostArray::Use::write);
  EXPECT_EQ(static_cast<const void*>(written.bytes().data()), tensor.const_data_ptr());
  EXPECT_GT(tensor._version(), version);
}

TEST(HostArray, IsACopyThatIsPutBackOtherwise) {
  for (const auto& tensor : {torch::ones({2, 3}).t(), torch::ones({2, 3}).to(fake_device(0)),
                             torch::ones({2, 3}).to(fake_device(0)).t()}) {
    const auto version = tensor._version();
    const HostArray array(tensor, "it", HostArray::Use::both);
    EXPECT_TRUE(array.is_copy());
    auto* const elements = reinterpret_cast<float*>(array.bytes().data());
    EXPECT_EQ(elements[5], 1);
    elements[5] = 7;
    EXPECT_TRUE(is_full_of(tensor, 1));
    array.put_back();
    EXPECT_EQ(tensor[tensor.size(0) - 1][tensor.size(1) - 1].item<float>(), 7);
    EXPECT_EQ(tensor.sum().item<float>(), 12);
    EXPECT_GT(tensor._version(), version);
  }
}

TEST(TensorCollectives, ReduceWhatIsOnAnotherDevice) {
  on_device_ranks(3, [](const Group& group) {
    for (const auto type :
         {torch::kUInt8, torch::kInt64, torch::kFloat16, torch::kFloat32, torch::kFloat64}) {
      const auto tensor = torch::full({2, 3}, group.rank() + 1, type).to(other_device(group.rank()));
      const auto version = tensor._version();
      all_reduce(group, tensor).wait();
      EXPECT_TRUE(is_full_of(tensor, 6)) << type;
      EXPECT_GT(tensor._version(), version);
    }
  });
}

TEST(TensorCollectives, BringTheResultToTheDeviceWhenTheWorkIsSeenToBeOver) {
  on_device_ranks(2, [](const Group& group) {
    const auto waited = torch::full({5}, group.rank() + 1).to(other_device(group.rank()));
    const auto tested = waited.clone();
    Work first = all_reduce(group, waited, ReduceOp::max), second = all_reduce(group, tested, ReduceOp::min);
    while (!second.test()) {
    }
    EXPECT_TRUE(is_full_of(tested, 1));
    while (!first.wait_for(std::chrono::seconds(1))) {
    }
    EXPECT_TRUE(is_full_of(waited, 2));
    std::vector<Work> both;
    both.push_back(all_reduce(group, waited));
    both.push_back(all_reduce(group, tested));
    Work::all(std::move(both)).wait();
    EXPECT_TRUE(is_full_of(waited, 4));
    EXPECT_TRUE(is_full_of(tested, 2));
  });
}

TEST(TensorCollectives, BroadcastGatherAndSendWhatIsOnAnotherDevice) {
  on_device_ranks(2, [](const Group& group) {
    const auto device = other_device(group.rank());
    const auto mine = torch::full({2}, group.rank() + 1, torch::kInt16).to(device);
    const auto all = torch::zeros({2, 2}, torch::kInt16).to(device);
    all_gather(group, mine, all).wait();
    for (int rank = 0; rank < 2; ++rank) EXPECT_TRUE(is_full_of(all[rank], rank + 1));
    if (group.rank() == 0) {
      send(group, mine, 1).wait();
    } else {
      recv(group, mine, 0).wait();
    }
    EXPECT_TRUE(is_full_of(mine, 1));
    const auto told = torch::full({3}, group.rank(), torch::kBool).to(device);
    broadcast(group, told, 1).wait();
    EXPECT_TRUE(is_full_of(told, 1));
  });
}

TEST(TensorCollectives, MoveBlocksOfWhatIsOnAnotherDevice) {
  on_device_ranks(2, [](const Group& group) {
    const auto device = other_device(group.rank());
    const auto on_device = [&](const torch::Tensor& tensor) { return tensor.to(device); };
    const bool is_root = group.rank() == 0;
    const auto mine = on_device(torch::full({2}, group.rank() + 1.0));
    const auto both = on_device(torch::zeros({2, 2})), sum = on_device(torch::zeros({2}));
    reduce(group, mine, is_root ? sum : torch::Tensor(), 0).wait();
    EXPECT_TRUE(is_full_of(sum, is_root ? 3 : 0));
    gather(group, mine, is_root ? both : torch::Tensor(), 0).wait();
    EXPECT_TRUE(is_full_of(both[1], is_root ? 2 : 0));
    scatter(group, is_root ? both : torch::Tensor(), sum, 0).wait();
    EXPECT_TRUE(is_full_of(sum, group.rank() + 1));
    reduce_scatter(group, on_device(torch::ones({2, 2})), sum).wait();
    EXPECT_TRUE(is_full_of(sum, 2));
    all_to_all(group, mine, sum).wait();
    EXPECT_EQ(sum.cpu()[0].item<float>(), 1);
    EXPECT_EQ(sum.cpu()[1].item<float>(), 2);
    const std::vector list = {on_device(torch::zeros({2})), torch::zeros({2})};
    all_gather(group, mine, list).wait();
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_TRUE(is_full_of(list[static_cast<std::size_t>(rank)], rank + 1));
  });
}

TEST(TensorCollectives, TakeRanksOnDifferentDevices) {
  on_device_ranks(2, [](const Group& group) {
    const auto tensor = torch::ones({3}).to(group.rank() == 0 ? torch::Device(torch::kCPU) : other_device(1));
    all_reduce(group, tensor).wait();
    EXPECT_TRUE(is_full_of(tensor, 2));
  });
}

TEST(TensorCollectives, AreTheSameInAGroupOfOneOnAnotherDevice) {
  const Group alone;
  const auto tensor = torch::ones({3}).to(other_device(0)), all = torch::zeros({3}).to(other_device(0));
  all_reduce(alone, tensor).wait();
  broadcast(alone, tensor, 0).wait();
  all_gather(alone, tensor, all).wait();
  EXPECT_TRUE(is_full_of(all, 1));
}

TEST(TensorCollectives, RefuseGapsOnAnotherDeviceToo) {
  try {
    all_reduce(Group(), torch::ones({2, 3}).to(other_device(0)).t()).wait();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("all_reduce's tensor is f32 [3, 2] on " + other_device(0).str() +
                                        " and not contiguous; pass"));
  }
}

TEST(TensorCollectives, GiveUpWhatAnExceptionLeavesBehindOnAnotherDevice) {
  const auto endings = run_device_ranks(2, [](const Group& group) {
    const auto tensor = torch::ones({3}).to(other_device(group.rank()));
    if (group.rank() == 1) {
      const Work work = recv(group, tensor, 0);
      throw std::runtime_error("out of luck");
    }
    all_reduce(group, tensor).wait();
  });
  EXPECT_EQ(endings[1].text, "out of luck");
  EXPECT_EQ(endings[0].peer, 1) << endings[0].text;
}

}  // namespace
}  // namespace lockstep
