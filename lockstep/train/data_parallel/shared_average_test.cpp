#include "lockstep/train/data_parallel/shared_average.h"

#include <gmock/gmock.h>

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
      const auto plans =
          plan_buckets(sizes, backward_order(sizes.size()), {.first_bytes = 64, .cap_bytes = 64});
      ASSERT_GE(plans.size(), 2U);
      SharedAverage average(group, plans);
      for (std::size_t number = 0; number < plans.size(); ++number) {
        std::vector<ArenaBuffer<float>> gradients;  // one for each slot
        std::vector<std::uint64_t> places;
        std::vector<std::vector<float>> expected;
        for (const auto& slot : plans[number].slots) {
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
          for (std::size_t i = 0; i < expected[slot].size(); ++i)
            EXPECT_EQ(gradients[slot][i], expected[slot][i]);
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

/// Two parameters whose gradients are views of one tensor.
struct SumOfTwo : torch::nn::Module {
  SumOfTwo() {
    a = register_parameter("a", torch::ones({40, 30}));
    b = register_parameter("b", torch::ones({1200}));
    joined = register_parameter("joined", torch::ones({200}));
    other = register_parameter("other", torch::ones({1000}));
  }
  torch::Tensor forward(const torch::Tensor& input) {
    return ((a + b.view({40, 30})) * input).sum() + (torch::cat({joined, other}) * input.view({1200})).sum();
  }
  torch::Tensor a, b, joined, other;
};

TEST(SharedAverage, IsOfGradientsThatShareMemory) {
  for (const int ranks : {2, 3}) {
    on_ranks(ranks, [](const Group& group) {
      auto net = std::make_shared<SumOfTwo>();
      DistributedDataParallel ddp(net, group);
      for (int step = 0; step < 5; ++step) {
        net->zero_grad();
        const auto input = torch::arange(1200).to(torch::kFloat).view({40, 30});
        ddp(input * (group.rank() + 1)).backward();
        const auto expected = input.view({1200}) * average_of_inputs(group);
        EXPECT_TRUE(torch::allclose(net->a.grad().view({1200}), expected));
        EXPECT_TRUE(torch::allclose(net->b.grad(), expected));
        EXPECT_TRUE(torch::allclose(torch::cat({net->joined.grad(), net->other.grad()}), expected));
      }
    });
  }
}

/// `used`, beside which there is another layer that its forward leaves out.
torch::nn::Sequential with_another(const torch::nn::Linear& used, const torch::nn::Linear& another) {
  torch::nn::Sequential net(used);
  net->register_module("another", another.ptr());
  return net;
}

TEST(SharedAverage, TakesParametersWithoutElements) {
  on_ranks(2, [](const Group& group) {
    auto used = ones(3, 2), empty = ones(3, 0);
    auto net = with_another(used, empty);
    DistributedDataParallel ddp(net, group);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      (ddp(row(group.rank() + 1)).sum() + empty(row(1)).sum()).backward();
      expect_weight_gradient(used, 1.5);
    }
  });
}

/// One rank has the gradient where the others put it before; another one adds to an average of a new order.
TEST(SharedAverage, IsOfParametersWhoseOrderChanges) {
  on_ranks(2, [](const Group& group) {
    auto used = ones(3, 2), turned = ones(4, 5);
    auto net = with_another(used, turned);
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    const auto step = [&](bool uses) {
      net->zero_grad();
      auto loss = ddp(row(group.rank() + 1)).sum();
      if (uses)
        loss = loss + turned(torch::arange(4).to(torch::kFloat).view({1, 4})).mul(torch::arange(5)).sum();
      loss.backward();
    };
    step(group.rank() == 0);  // rank 1 has memory for it now
    turned->weight.set_data(turned->weight.detach().t().contiguous().t());
    step(group.rank() == 0);
    const auto expected = torch::outer(torch::arange(5), torch::arange(4)).to(torch::kFloat) / 2;
    EXPECT_TRUE(torch::equal(turned->weight.grad(), expected)) << turned->weight.grad();
  });
}

/// What no rank has used keeps its bits, also those that an average of equal ones would lose.
TEST(SharedAverage, LeavesAloneWhatNobodyHasUsed) {
  on_ranks(3, [](const Group& group) {
    auto used = ones(3, 2), unused = ones(30, 20);
    auto net = with_another(used, unused);
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    const auto values = torch::linspace(0.1, 0.7, 600).view({20, 30});
    for (int step = 0; step < 3; ++step) {
      used->zero_grad();
      unused->weight.mutable_grad() = values.clone();
      ddp(row(group.rank() + 1)).sum().backward();
      EXPECT_TRUE(torch::equal(unused->weight.grad(), values));
      expect_weight_gradient(used, 2.0);
    }
  });
}

/// The first rank's gradient of the first pass was where autograd had made it, the others' were in their buckets.
TEST(SharedAverage, LeavesAloneWhatNobodyHasUsedSinceAPassInWhichOneHad) {
  on_ranks(3, [](const Group& group) {
    auto used = ones(3, 2), sometimes = ones(30, 20);
    auto net = with_another(used, sometimes);
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    torch::Tensor before;
    for (const bool uses : {true, false, false}) {
      used->zero_grad();
      auto loss = ddp(row(group.rank() + 1)).sum();
      if (uses && group.rank() == 0)
        loss = loss + (sometimes(torch::linspace(0.1, 0.7, 30).view({1, 30}))).sum();
      loss.backward();
      const auto& gradient = sometimes->weight.grad();
      if (before.defined()) {
        EXPECT_TRUE(torch::equal(gradient, before));
      }
      before = gradient.clone();
    }
  });
}

/// A rank that is stopped meanwhile writes there when it goes on.
TEST(SharedAverage, OfAPassThatIsCutOffHasItsMemoryToItself) {
  on_ranks(2, [](const Group& world) {
    const Group group = world.subgroup(std::array{0, 1});
    auto net = ones(64, 64);
    DistributedDataParallel ddp(net, group);
    std::vector<const void*> lent;
    const auto note = [&](const torch::Tensor& gradient) { lent.push_back(gradient.const_data_ptr()); };
    net->weight.register_hook(note);
    net->bias.register_hook(note);
    if (world.rank() == 1)
      net->weight.register_hook([](const torch::Tensor&) { throw std::runtime_error("it broke"); });
    EXPECT_ANY_THROW(ddp(torch::ones({1, 64})).sum().backward());
    for (const torch::Tensor& parameter : net->parameters()) {
      EXPECT_TRUE(world.rank() != 0 || !parameter.grad().defined());
    }
    std::vector<torch::Tensor> others;
    for (int i = 0; i < 50; ++i) {
      others.push_back(torch::ones({64, 64}));
      others.push_back(torch::ones({64}));
    }
    if (world.rank() == 0) {
      ASSERT_EQ(lent.size(), 2U);
      for (const torch::Tensor& other : others)
        EXPECT_THAT(lent, testing::Not(testing::Contains(other.const_data_ptr())));
    }
    barrier(world).wait();
  });
}

/// As a hook sees it when it is final, which may be what the user keeps.
struct Seen : torch::autograd::PostAccumulateGradHook {
  explicit Seen(torch::Tensor& gradient) : gradient(gradient) {}
  void operator()(const torch::Tensor& parameter) override { gradient = parameter.grad(); }
  torch::Tensor& gradient;
};

TEST(SharedAverage, LeavesAloneWhatTheUserKeeps) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    torch::Tensor kept, final;
    torch::autograd::impl::set_post_acc_grad_hooks(net->bias, std::make_unique<Seen>(final));
    DistributedDataParallel ddp(net, group);
    net->weight.register_hook([&](const torch::Tensor& gradient) { kept = gradient; });
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      (ddp(row(group.rank() + 1)) * (group.rank() + 1)).sum().backward();
      const int own = group.rank() + 1;
      EXPECT_TRUE(torch::equal(kept, torch::full({2, 3}, own * own)));
      EXPECT_TRUE(torch::equal(final, torch::full({2}, own)));
      EXPECT_TRUE(torch::equal(net->weight.grad(), torch::full({2, 3}, 2.5)));
      EXPECT_TRUE(torch::equal(net->bias.grad(), torch::full({2}, 1.5)));
    }
  });
}

/// What autograd has taken away from the parameter while it is averaged.
TEST(SharedAverage, IsThereAlsoWhereAHookHasTakenTheGradientAway) {
  on_ranks(2, [](const Group& group) {
    auto first = ones(3, 3), last = ones(3, 2);
    torch::nn::Sequential net(first, last);
    DistributedDataParallel ddp(net, group, {.first_bucket_bytes = 1});
    bool takes = false;
    first->weight.register_hook([&](const torch::Tensor&) {
      if (takes) last->weight.mutable_grad().reset();
    });
    for (takes = false;; takes = true) {
      net->zero_grad();
      ddp(row(group.rank() + 1)).sum().backward();
      EXPECT_TRUE(last->weight.grad().defined());
      EXPECT_TRUE(
          torch::allclose(last->weight.grad(), torch::full({2, 3}, 1 + 3 * average_of_inputs(group))));
      if (takes) break;
    }
  });
}

TEST(SharedAverage, LeavesGradientsWhereTheyWereBornInTheSharedHeap) {
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
      EXPECT_EQ(born, net->weight.grad().const_data_ptr())
          << "before it is there, the leaf hook brings it into its bucket";
      const auto between = static_cast<const std::byte*>(net->weight.grad().const_data_ptr()) -
                           static_cast<const std::byte*>(net->bias.grad().const_data_ptr());
      barrier(group).wait();
      return std::abs(between);
    };
    constexpr std::ptrdiff_t in_one_bucket = 64;
    EXPECT_NE(step(true), in_one_bucket);
    EXPECT_EQ(step(false), in_one_bucket);
  });
}

}  // namespace
}  // namespace lockstep
