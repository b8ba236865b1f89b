// Optimizers whose steps are kernels of Lockstep's own: how many of them, and what is left where a step is cut off. That they train as on
// the CPU is seen by the tests of other devices, which are in this program, too.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/device_arena/kernel_image.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/gpu_calls.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/optimizer/fused_optimizer.h"
#include "lockstep/train/replicas/same_options.h"
#include "lockstep/train/sharded/sharded_optimizer.h"
#include "lockstep/train/tensor/fake_device_test.h"
#include "lockstep/train/tensor/ranks_test.h"
#include "tests/gpu/on_gpus_test.h"

namespace lockstep {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

class OptimizersOnGpus : public ::testing::Test {
 protected:
  OptimizersOnGpus() { device_arena::take_kernels_of_the_driver(); }
};

/// Eleven parameters, each of a size of its own.
std::vector<torch::Tensor> parameters_on(torch::Device device) {
  std::vector<torch::Tensor> all;
  for (int number = 0; number < 11; ++number)
    all.push_back(torch::full({number + 1, 3}, number * 0.1).to(device).requires_grad_());
  return all;
}

void set_gradients(const std::vector<torch::Tensor>& parameters, double value) {
  for (const torch::Tensor& parameter : parameters)
    parameter.mutable_grad() = torch::full_like(parameter, value);
}

TEST_F(OptimizersOnGpus, MoveAllOfARanksParametersByOneKernel) {
  const auto parameters = parameters_on(fake_device(0)), on_cpu = parameters_on(torch::kCPU);
  const auto options = AdamWOptions(0.05).weight_decay(0.1);
  FusedAdamW optimizer(parameters, options), cpu_optimizer(on_cpu, options);
  (void)standin::take_kernels();
  for (int step = 0; step < 3; ++step) {
    set_gradients(parameters, 0.3 - step);
    set_gradients(on_cpu, 0.3 - step);
    if (step == 1) parameters[4].mutable_grad() = on_cpu[4].mutable_grad() = torch::Tensor();
    optimizer.step();
    cpu_optimizer.step();
  }
  for (std::size_t i = 0; i < parameters.size(); ++i)
    EXPECT_TRUE(torch::equal(parameters[i].cpu(), on_cpu[i]))
        << "the bits of main memory, of parameter " << i;
  // In the last step one parameter is a step behind the others.
  EXPECT_THAT(standin::take_kernels(), AllOf(Each("lockstep_adam_list_f32"), SizeIs(4)));
}

TEST_F(OptimizersOnGpus, TakeStepsBeforeAnErrorThatTheyCounted) {
  const auto parameters = parameters_on(fake_device(0));
  FusedSGD optimizer(parameters, SGDOptions(0.5).momentum(0.9));
  set_gradients(parameters, 1.0);
  optimizer.step();
  auto wrong = torch::ones({2, 2}).to(fake_device(0)).requires_grad_();
  optimizer.add_param_group(torch::optim::OptimizerParamGroup({wrong}));
  wrong.mutable_grad() = torch::ones_like(wrong);
  auto state = std::make_unique<torch::optim::SGDParamState>();
  state->momentum_buffer(torch::ones({3}).to(fake_device(0)));
  optimizer.state()[wrong.unsafeGetTensorImpl()] = std::move(state);
  EXPECT_THROW(optimizer.step(), Error);
  EXPECT_TRUE(torch::allclose(parameters[2].cpu(), torch::full({3, 3}, 0.2 - 0.5 - 0.5 * 1.9)));
}

using Sgd = ShardedOptimizer<torch::optim::SGD>;

void backward(const Group& group, torch::nn::Linear& net) {
  net->zero_grad();
  net->forward(row(group.rank() + 1).to(net->weight.device())).sum().backward();
}

TEST_F(OptimizersOnGpus, AddUpAndMoveInOneKernelWhereRanksShareOne) {
  (void)standin::take_kernels();
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2), on_cpu = ones(3, 2);
    net->to(fake_device(0));
    const auto options = SGDOptions(0.1).momentum(0.9).weight_decay(0.01);
    Sgd optimizer(*net, group, options), cpu_optimizer(*on_cpu, group, options);
    for (int step = 0; step < 3; ++step) {
      backward(group, net);
      backward(group, on_cpu);
      optimizer.step();
      cpu_optimizer.step();
    }
    EXPECT_TRUE(torch::equal(net->weight.cpu(), on_cpu->weight)) << "the bits of main memory";
  });
  EXPECT_THAT(standin::take_kernels(), AllOf(Each("lockstep_sgd_f32"), SizeIs(3 * 2)));  // one of each rank
}

TEST_F(OptimizersOnGpus, KnowTheLengthOfWhatTheyAddUpFirstWhereItIsAskedFor) {
  (void)standin::take_kernels();
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2), on_cpu = ones(3, 2);
    net->to(fake_device(0));
    const ShardedOptions options{.max_gradient_norm = 0.5};
    Sgd optimizer(*net, group, SGDOptions(0.1), options),
        cpu_optimizer(*on_cpu, group, SGDOptions(0.1), options);
    for (const auto& [model, its] : {std::pair(&net, &optimizer), std::pair(&on_cpu, &cpu_optimizer)}) {
      backward(group, *model);
      its->step();
    }
    EXPECT_TRUE(torch::allclose(net->weight.cpu(), on_cpu->weight));
  });
  const auto kernels = standin::take_kernels();
  EXPECT_EQ(std::ranges::count(kernels, "lockstep_sum_f32"), 2);
  EXPECT_EQ(std::ranges::count(kernels, "lockstep_sgd_list_f32"), 2) << "of each rank's part";
  EXPECT_EQ(std::ranges::count(kernels, "lockstep_move"), 2);
}

TEST_F(OptimizersOnGpus, MoveTheirPartByOneKernelWhereEachRankHasOne) {
  (void)standin::take_kernels();
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    net->to(fake_device(group.rank()));
    Sgd optimizer(*net, group, SGDOptions(0.1));
    backward(group, net);
    optimizer.step();
    EXPECT_TRUE(torch::allclose(net->weight.cpu(), torch::full({2, 3}, 1 - 0.1 * average_of_inputs(group))));
  });
  EXPECT_THAT(standin::take_kernels(), ElementsAre("lockstep_sgd_list_f32", "lockstep_sgd_list_f32"));
}

/// Rank 1 comes 200 ms late, which rank 0's GPU notices where it has nothing else to do.
TEST_F(OptimizersOnGpus, AreWaitedForInTheRecordByTheGpusClock) {
  for (const bool is_busy : {false, true}) {
    on_ranks(2, [&](const Group& group) {
      auto net = ones(3, 2);
      net->to(fake_device(group.rank()));
      std::optional<Sgd> optimizer(std::in_place, *net, group, SGDOptions(0.1));
      backward(group, net);
      if (is_busy)
        standin::launch(
            nullptr, [] { std::this_thread::sleep_for(std::chrono::milliseconds(400)); }, group.rank());
      if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      optimizer->step();
      (void)net->weight.cpu();  // its GPU is through
      optimizer.reset();
      const auto steps = group.recorder().steps_since(0);
      ASSERT_EQ(steps.size(), 1U);
      if (group.rank() == 0 && !is_busy) {
        EXPECT_GT(steps[0].exposed_wait_ns, 100'000'000U);
      }
      if (group.rank() == 0 && is_busy) {
        EXPECT_LT(steps[0].exposed_wait_ns, 300'000'000U) << "200 of the 400 ms that rank 1's takes longer";
      }
      barrier(group).wait();
    });
  }
}

/// A rank that is gone by the time of the kernel: whether it had begun is not known.
TEST_F(OptimizersOnGpus, SayThatAStepWasCutOff) {
  const auto endings = run_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    net->to(fake_device(0));
    Sgd optimizer(*net, group, SGDOptions(0.1));
    backward(group, net);
    optimizer.step();
    if (group.rank() == 1) {
      // What a step tells the others at first: its options, and which parameters have gradients.
      const std::vector<std::uint64_t> row{option_digest(optimizer.param_groups()), 1, 1};
      std::vector<std::uint64_t> all(2 * row.size());
      all_gather(group, row, all).wait();
      group.abort("it has had enough");
      return;
    }
    optimizer.step();
  });
  EXPECT_THAT(endings[0].text, HasSubstr("it has had enough"));
  EXPECT_THAT(endings[0].text, HasSubstr("step 1 of a ShardedOptimizer"));
  EXPECT_THAT(
      endings[0].text,
      HasSubstr("it was cut off while parameters were being changed: they are no model now, load the last "
                "checkpoint"));
}

}  // namespace
}  // namespace lockstep
