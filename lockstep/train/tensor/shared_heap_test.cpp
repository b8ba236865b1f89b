#include "lockstep/train/tensor/shared_heap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/in_process.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

/// One rank of a world of two, the other of which does nothing.
class ASharedHeap : public testing::Test {
 protected:
  /// Near what the arena gives out first: arenas are far larger than all that is allocated here.
  bool is_in_arena(const torch::Tensor& tensor) const {
    const std::less<> before;
    const std::byte* const begin = first_.bytes().data();
    const auto* const data = static_cast<const std::byte*>(tensor.const_data_ptr());
    return !before(data, begin) && before(data, begin + most_bytes);
  }

  void fail_a_collective() {
    std::vector<float> one(1), two(2);
    Work first = all_reduce(world_[0], one), second = all_reduce(world_[1], two);
    EXPECT_THROW(first.wait(), Error);
    EXPECT_THROW(second.wait(), Error);
  }

  static constexpr std::size_t most_bytes = std::size_t{64} << 20;
  std::vector<Group> world_ = in_process_world(2);
  ArenaBlock first_ = world_[0].allocate_bytes(1);
  std::optional<SharedHeap> heap_{std::in_place, world_[0]};
};

TEST_F(ASharedHeap, HoldsTensorsAndTheirGradients) {
  torch::nn::Linear net(64, 32);
  net(torch::ones({8, 64})).sum().backward();
  for (const auto& parameter : net->parameters()) {
    EXPECT_TRUE(is_in_arena(parameter));
    EXPECT_TRUE(is_in_arena(parameter.grad()));
  }
  EXPECT_TRUE(torch::equal(net->bias.grad(), torch::full({32}, 8.0)));
}

TEST_F(ASharedHeap, UsesMemoryAgain) {
  torch::nn::Sequential net(torch::nn::Linear(256, 256), torch::nn::ReLU(), torch::nn::Linear(256, 256));
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto input = torch::ones({32, 256});
  const auto step = [&] {
    sgd.zero_grad();
    net->forward(input).sum().backward();
    sgd.step();
  };
  for (int i = 0; i < 3; ++i) step();
  const SharedHeapStatistics before = heap_->statistics();
  rusage faults_before{}, faults_after{};
  ::getrusage(RUSAGE_SELF, &faults_before);
  for (int i = 0; i < 20; ++i) step();
  ::getrusage(RUSAGE_SELF, &faults_after);
  const SharedHeapStatistics after = heap_->statistics();
  EXPECT_EQ(after.peak_bytes, before.peak_bytes);
  EXPECT_EQ(after.reused - before.reused, after.allocations - before.allocations) << "nothing new";
#ifndef __SANITIZE_ADDRESS__  // has faults of its own
  EXPECT_LE(faults_after.ru_minflt - faults_before.ru_minflt, 20 * 10);
#endif
}

TEST_F(ASharedHeap, IsLeftByTensorsThatStayValid) {
  torch::Tensor kept = torch::arange(1000);
  const torch::Tensor expected = kept.clone();
  heap_.reset();
  world_.clear();
  EXPECT_TRUE(torch::equal(kept, expected));
  kept.resize_({5000});  // its storage grows by the allocator that it came from
  EXPECT_TRUE(torch::equal(kept.slice(0, 0, 1000), expected));
  kept.reset();
}

TEST_F(ASharedHeap, GivesWayToTheAllocatorFromBefore) {
  heap_.reset();
  EXPECT_FALSE(is_in_arena(torch::ones(100)));
  heap_.emplace(world_[0]);
  EXPECT_TRUE(is_in_arena(torch::ones(100)));
  EXPECT_EQ(heap_->statistics().used_bytes, 0U);
}

TEST_F(ASharedHeap, TakesBackNothingOfAnEarlierOne) {
  std::optional<torch::Tensor> earlier = torch::ones(100);
  heap_.reset();
  heap_.emplace(world_[1]);
  earlier.reset();
  EXPECT_EQ(heap_->statistics().used_bytes, 0U);
  EXPECT_EQ(heap_->statistics().spare_bytes, 0U);
}

TEST_F(ASharedHeap, KeepsNoMoreThanItMay) {
  heap_.reset();
  heap_.emplace(world_[0], SharedHeapOptions{.most_spare_bytes = 1 << 20});
  for (int i = 0; i < 10; ++i) {
    std::vector<torch::Tensor> many;
    for (int tensor = 0; tensor < 20; ++tensor) many.push_back(torch::empty({100'000 + 10'000 * i}));
  }
  EXPECT_EQ(heap_->statistics().used_bytes, 0U);
  EXPECT_LE(heap_->statistics().spare_bytes, std::uint64_t{1} << 20);
}

TEST_F(ASharedHeap, IsTheOnlyOne) {
  try {
    const SharedHeap second(world_[1]);
    ADD_FAILURE() << "a second heap";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(),
                 "this process has a shared heap already, in group \"world\"; libtorch has one allocator: "
                 "destroy that heap first, or go on with it");
  }
  EXPECT_TRUE(is_in_arena(torch::ones(100))) << "the first one is unharmed";
}

TEST_F(ASharedHeap, ThatIsFullSaysWhatItHolds) {
  const torch::Tensor held = torch::empty({1000});
  const auto too_much = static_cast<std::int64_t>(1) << 46;
  try {
    torch::empty({too_much}, torch::kUInt8);
    ADD_FAILURE() << "a tensor of " << too_much << " bytes";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("the shared heap cannot hold a tensor of 70368744177664 bytes beside "
                                        "the 4096 that others use: the arena of "));
    EXPECT_THAT(error.what(), HasSubstr("set LOCKSTEP_ARENA_BYTES to a larger size"));
  }
}

TEST_F(ASharedHeap, IsNotUsedAgainAfterAFailure) {
  torch::Tensor kept = torch::ones(100);
  fail_a_collective();
  kept.reset();
  EXPECT_FALSE(is_in_arena(torch::ones(100))) << "a rank that was stopped may still write there";
  EXPECT_EQ(heap_->statistics().used_bytes, 0U);
}

TEST_F(ASharedHeap, GoesOnInTheNextWorldAfterAFailure) {
  torch::Tensor kept = torch::ones(100);
  fail_a_collective();
  world_ = in_process_world(2);
  first_ = world_[0].allocate_bytes(1);
  heap_->move_to(world_[0]);
  EXPECT_TRUE(kept.eq(1).all().item<bool>());
  kept.reset();
  for (int time = 0; time < 2; ++time) EXPECT_TRUE(is_in_arena(torch::ones(100))) << time;
  EXPECT_EQ(heap_->statistics().used_bytes, 0U) << "what was there before is not counted";
  EXPECT_GE(heap_->statistics().reused, 1U);
}

TEST_F(ASharedHeap, ServesSeveralThreads) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([thread] {
      for (int round = 0; round < 300; ++round) {
        const auto a = torch::full({round + 1}, thread);
        const auto b = a + 1;
        ASSERT_TRUE((b - a).eq(1).all().item<bool>());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(heap_->statistics().used_bytes, 0U);
}

}  // namespace
}  // namespace lockstep
