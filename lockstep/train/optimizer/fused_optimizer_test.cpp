#include "lockstep/train/optimizer/fused_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/failure_test.h"

#include "lockstep/train/optimizer/update_rule.h"

namespace lockstep {
namespace {

using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

torch::nn::Sequential make_net(torch::ScalarType type) {
  torch::manual_seed(7);
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 5, 3)), torch::nn::ReLU(),
                            torch::nn::Flatten(), torch::nn::Linear(5 * 6 * 6, 11));
  net->to(type);
  return net;
}

template <class Optimizer>
void train(Optimizer& optimizer, torch::nn::Sequential& net, int steps, torch::ScalarType type) {
  torch::manual_seed(8);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    net->forward(torch::randn({4, 3, 8, 8}, type)).square().mean().backward();
    optimizer.step();
  }
}

double difference(const torch::nn::Sequential& a, const torch::nn::Sequential& b) {
  double most = 0;
  for (std::size_t i = 0; i < a->parameters().size(); ++i) {
    const auto one = a->parameters()[i], other = b->parameters()[i];
    most = std::max(most, ((one - other).norm() / other.norm()).item<double>());
  }
  return most;
}

/// 20 steps of libtorch's optimizer and of ours end in the same parameters.
template <class Base, class Options>
void expect_same(const Options& options, torch::ScalarType type) {
  auto net = make_net(type), expected = make_net(type);
  FusedOptimizer<Base> fused(net->parameters(), options);
  Base plain(expected->parameters(), options);
  train(fused, net, 20, type);
  train(plain, expected, 20, type);
  EXPECT_LT(difference(net, expected), type == torch::kFloat64 ? 1e-12 : 1e-5)
      << kind_of(options) << " " << type;
  EXPECT_GT(difference(net, make_net(type)), 1e-3) << "it trained";
}

class FusedOptimizers : public testing::TestWithParam<torch::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, FusedOptimizers, testing::Values(torch::kFloat32, torch::kFloat64));

TEST_P(FusedOptimizers, DoAsLibtorchsDo) {
  expect_same<SGD>(SGDOptions(0.05), GetParam());
  expect_same<SGD>(SGDOptions(0.05).momentum(0.9), GetParam());
  expect_same<SGD>(SGDOptions(0.05).momentum(0.9).dampening(0.3).weight_decay(0.1), GetParam());
  expect_same<SGD>(SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(0.1), GetParam());
  expect_same<Adam>(AdamOptions(0.01).weight_decay(0.1), GetParam());
  expect_same<AdamW>(AdamWOptions(0.01).betas({0.8, 0.99}).eps(1e-6), GetParam());
}

/// The next optimizer of the same net, with the state of the one before.
template <class Next, class Before>
std::unique_ptr<Next> taken_over(const Before& before, torch::nn::Sequential& net,
                                 const SGDOptions& options) {
  std::stringstream state;
  torch::save(before, state);
  auto next = std::make_unique<Next>(net->parameters(), options);
  torch::load(*next, state);
  return next;
}

TEST(FusedOptimizer, GoesOnFromTheStateOfLibtorchsAndTheOtherWayRound) {
  const SGDOptions options = SGDOptions(0.05).momentum(0.9);
  auto net = make_net(torch::kFloat64), expected = make_net(torch::kFloat64);
  SGD reference(expected->parameters(), options);
  SGD first(net->parameters(), options);
  train(first, net, 5, torch::kFloat64);
  const auto second = taken_over<FusedSGD>(first, net, options);
  train(*second, net, 5, torch::kFloat64);
  const auto third = taken_over<SGD>(*second, net, options);
  train(*third, net, 5, torch::kFloat64);
  for (int part = 0; part < 3; ++part) train(reference, expected, 5, torch::kFloat64);
  EXPECT_LT(difference(net, expected), 1e-12);
}

TEST(FusedOptimizer, TakesGroupsSchedulesAndSparseOrMissingGradients) {
  auto table = torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 4).sparse(true));
  const auto unused = torch::ones({5}, torch::requires_grad());
  const auto used = torch::ones({5}, torch::requires_grad());
  FusedSGD sgd({torch::optim::OptimizerParamGroup({table->weight, unused}),
                torch::optim::OptimizerParamGroup({used}, std::make_unique<SGDOptions>(0.5))},
               SGDOptions(1.0));
  const auto before = table->weight.detach().clone();
  for (int step = 0; step < 2; ++step) {
    sgd.zero_grad();
    (table->forward(torch::tensor({1, 1, 3})).sum() + used.sum()).backward();
    sgd.step();
    for (auto& group_options : sgd.param_groups())  // as schedulers do
      group_options.options().set_lr(0.1 * group_options.options().get_lr());
  }
  auto expected = before.clone();
  expected[1] -= 2 * 1.1;
  expected[3] -= 1.1;
  EXPECT_TRUE(torch::allclose(table->weight.detach(), expected, 1e-5, 1e-6)) << "some end near 0";
  EXPECT_TRUE(torch::equal(unused.detach(), torch::ones(5)));
  EXPECT_TRUE(torch::allclose(used.detach(), torch::full({5}, 1 - 0.55)));
}

TEST(FusedOptimizer, RunsAClosureWithGradients) {
  const auto x = torch::ones({3}, torch::requires_grad());
  FusedSGD sgd({x}, SGDOptions(1.0));
  const auto loss = sgd.step([&] {
    sgd.zero_grad();
    auto sum = (x * x).sum();
    sum.backward();
    return sum;
  });
  EXPECT_EQ(loss.item<double>(), 3);
  EXPECT_TRUE(torch::equal(x.detach(), torch::full({3}, -1.0)));
}

TEST(FusedOptimizer, RefusesWhatItDoesNotDo) {
  const auto refusal = [](auto&& act) -> std::string {
    try {
      act();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      return error.what();
    }
    return "";
  };
  const auto step_on = [](const torch::Tensor& parameter, const AdamOptions& options) {
    FusedAdam adam({parameter}, options);
    parameter.mutable_grad() = torch::ones_like(parameter);
    adam.step();
  };
  EXPECT_EQ(refusal([&] { step_on(torch::ones(4), AdamOptions().amsgrad(true)); }),
            "amsgrad is not done here; use libtorch's own optimizer");
  EXPECT_EQ(refusal([&] { step_on(torch::ones(4, torch::kBFloat16), AdamOptions()); }),
            "a parameter of a fused optimizer is bf16 [4]; parameters are dense, of type f32 or f64");
}

template <class From, class To>
void exchange(From& from, To& to) {
  std::stringstream file;
  torch::save(from, file);
  torch::load(to, file);
}

template <class Optimizer>
void take_a_step(Optimizer& optimizer) {
  for (auto& parameter : optimizer.param_groups()[0].params())
    parameter.mutable_grad() = torch::ones_like(parameter);
  optimizer.step();
}

TEST(FusedOptimizer, RefusesTheStateOfAnotherModelOrOptimizer) {
  torch::nn::Linear small(8, 2), large(8, 2000);
  FusedAdamW of_small(small->parameters(), AdamWOptions(0.1)),
      of_large(large->parameters(), AdamWOptions(0.1));
  take_a_step(of_small);
  take_a_step(of_large);
  of_large.param_groups()[0].options().set_lr(0.2);
  const auto large_key = large->weight.unsafeGetTensorImpl();
  const auto* const state_before = of_large.state().at(large_key).get();
  EXPECT_EQ(test::failure_of([&] { exchange(of_small, of_large); }, ErrorCode::invalid_argument),
            "the optimizer's state of parameter 0 of group 0, f32 [2000, 8], is f32 [2, 8]: that of another "
            "model; load what was saved with this one");
  EXPECT_EQ(of_large.param_groups()[0].options().get_lr(), 0.2);
  EXPECT_EQ(of_large.state().at(large_key).get(), state_before) << "nothing has changed";
  take_a_step(of_large);
  FusedSGD other(small->parameters(), SGDOptions(0.1).momentum(0.9));
  const auto key = small->weight.unsafeGetTensorImpl();
  other.state()[key] = of_small.state().at(key)->clone();
  EXPECT_EQ(
      test::failure_of([&] { take_a_step(other); }, ErrorCode::invalid_argument),
      "the state of parameter 0 of group 0 is that of another optimizer than SGD; load what SGD has saved");
  of_large.state()[large_key] = of_small.state().at(key)->clone();
  EXPECT_THAT(test::failure_of([&] { take_a_step(of_large); }, ErrorCode::invalid_argument),
              testing::HasSubstr("is f32 [2, 8]: that of another model"));
}

TEST(FusedOptimizer, TakesNothingOfAnArchiveThatLibtorchRefusesInTheMiddle) {
  const auto make = [](std::size_t in_second_group, double learning_rate) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector{torch::zeros(4)});
    groups.emplace_back(torch::zeros({static_cast<std::int64_t>(in_second_group), 4}).unbind());
    return FusedSGD(groups, SGDOptions(learning_rate).momentum(0.9));
  };
  FusedSGD saved = make(2, 0.3), here = make(1, 0.1);
  take_a_step(here);
  const auto* const state_before = here.state().begin()->second.get();
  EXPECT_THROW(exchange(saved, here), c10::Error);
  EXPECT_EQ(here.param_groups()[0].options().get_lr(), 0.1);
  ASSERT_EQ(here.state().size(), 1U);
  EXPECT_EQ(here.state().begin()->second.get(), state_before);
}

TEST(FusedOptimizer, TakesStateThatLiesOtherwiseInMemory) {
  auto weight = torch::arange(24, torch::kFloat32).view({1, 2, 3, 4}), expected = weight.clone();
  weight = weight.to(torch::MemoryFormat::ChannelsLast).requires_grad_();
  expected.requires_grad_();
  const auto options = SGDOptions(0.1).momentum(0.9);
  FusedSGD fused({weight}, options);
  SGD plain({expected}, options);
  for (auto* optimizer :
       {static_cast<torch::optim::Optimizer*>(&fused), static_cast<torch::optim::Optimizer*>(&plain)}) {
    auto state = std::make_unique<torch::optim::SGDParamState>();
    state->momentum_buffer(torch::arange(24, torch::kFloat64)
                               .view({1, 2, 3, 4})
                               .to(optimizer == &fused ? torch::kFloat64 : torch::kFloat32));
    auto& parameter = optimizer->param_groups()[0].params()[0];
    optimizer->state()[parameter.unsafeGetTensorImpl()] = std::move(state);
  }
  take_a_step(fused);
  take_a_step(plain);
  EXPECT_TRUE(torch::allclose(weight, expected));
}

}  // namespace
}  // namespace lockstep
