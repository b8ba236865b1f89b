#include "lockstep/train/data_parallel/shared_average.h"

#include <gtest/gtest.h>

#include "lockstep/group/collectives.h"
#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using namespace test;

TEST(SharedAverage, IsWhatAnAllReduceOfTheBucketsGives) {
  for (const int ranks : {2, 3, 4}) {
    on_ranks(ranks, [](const Group& group) {
      const std::vector<GradientSize> sizes = {
          {5, Dtype::f32}, {1000, Dtype::f32}, {0, Dtype::f32}, {33, Dtype::f32}};
      std::vector<Bucket> buckets;
      for (auto& plan :
           plan_buckets(sizes, backward_order(sizes.size()), {.first_bytes = 64, .cap_bytes = 64}))
        buckets.emplace_back(group, std::move(plan));
      ASSERT_GE(buckets.size(), 2U);
      SharedAverage average(group, buckets);
      for (std::size_t number = 0; number < buckets.size(); ++number) {
        std::vector<ArenaBuffer<float>> gradients;  // elsewhere in the arena, one for each slot
        std::vector<std::uint64_t> places;
        std::vector<std::vector<float>> expected;
        for (const auto& slot : buckets[number].plan().slots) {
          gradients.push_back(group.allocate<float>(std::max<std::size_t>(slot.elements, 1)));
          for (std::size_t i = 0; i < slot.elements; ++i)
            gradients.back()[i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(group.rank() + 1));
          const auto mine = gradients.back().span().first(slot.elements);
          places.push_back(to_word(average.place_of(std::as_bytes(mine)).value()));
          expected.emplace_back(mine.begin(), mine.end());
          all_reduce(group, expected.back(), ReduceOp::average).wait();
        }
        average.tell(number, places).wait();
        average.add_up(number, 1.0 / group.size());
        barrier(group).wait();
        for (std::size_t slot = 0; slot < expected.size(); ++slot) {
          const auto* const found =
              reinterpret_cast<const float*>(buckets[number].slot_data(buckets[number].plan().slots[slot]));
          for (std::size_t i = 0; i < expected[slot].size(); ++i) EXPECT_EQ(found[i], expected[slot][i]);
        }
        barrier(group).wait();
      }
    });
  }
}

TEST(SharedAverage, NoticesThatRanksAverageDifferentThings) {
  const auto endings = run_ranks(2, [](const Group& group) {
    auto a = ones(3, 2), b = ones(30, 20);
    DistributedDataParallel first(a, group), second(b, group);
    const auto loss_a = first(row(1)).sum(), loss_b = second(torch::ones({1, 30})).sum();
    (group.rank() == 0 ? loss_a : loss_b).backward();
    (group.rank() == 0 ? loss_b : loss_a).backward();
  });
  for (const auto& ending : endings) EXPECT_EQ(ending.code, ErrorCode::mismatch) << ending.text;
}

TEST(SharedAverage, ServesGradientsThatWereBornInTheSharedHeapWithoutACopy) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    struct Watch : torch::autograd::PostAccumulateGradHook {
      explicit Watch(const void*& born) : born(born) {}
      void operator()(const torch::Tensor& tensor) override { born = tensor.grad().const_data_ptr(); }
      const void*& born;
    };
    const void* born = nullptr;
    torch::autograd::impl::set_post_acc_grad_hooks(net->weight, std::make_unique<Watch>(born));
    const auto step = [&](bool with_heap) {
      net->zero_grad();
      DistributedDataParallel ddp(net, group, {.shared_heap = with_heap});
      barrier(group).wait();  // one heap serves both ranks, which are threads
      ddp(row(group.rank() + 1)).sum().backward();
      expect_weight_gradient(net, 1.5);
      const bool is_copied = born == net->weight.grad().const_data_ptr();
      barrier(group).wait();
      return is_copied;
    };
    EXPECT_FALSE(step(true));
    EXPECT_TRUE(step(false)) << "the leaf hook has brought it into its bucket";
  });
}

}  // namespace
}  // namespace lockstep
