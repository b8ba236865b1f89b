#include "lockstep/train/replicas/model_average.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

/// Everything in it is `value`, or `value` cut to an integer; one parameter has two names, one has gaps.
struct Net : torch::nn::Module {
  explicit Net(double value, std::int64_t width = 5, torch::ScalarType type = torch::kFloat32) {
    weight = register_parameter("weight", torch::full({width, 3}, value, type));
    register_parameter("same", weight);
    turned = register_parameter("turned", torch::full({3, 2}, value, type).t());
    frozen = register_parameter("frozen", torch::full({2}, value, torch::kFloat64), false);
    mean = register_buffer("mean", torch::full({4}, value));
    batches = register_buffer("batches", torch::tensor(static_cast<std::int64_t>(value)));
  }
  void fill(double value) {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.fill_(value);
    for (auto& buffer : buffers()) buffer.fill_(value);
  }
  torch::Tensor weight, turned, frozen, mean, batches;
};

void expect_all(const torch::Tensor& tensor, double value) {
  EXPECT_TRUE(torch::allclose(tensor.detach().to(torch::kFloat64),
                              torch::full(tensor.sizes(), value, torch::kFloat64), 0, 1e-6))
      << tensor;
}

TEST(ModelAverage, OverRanksIsTheirMean) {
  test::on_ranks(3, [](const Group& group) {
    const auto net = std::make_shared<Net>(10 * group.rank() + 1);  // 1, 11, 21
    average_models(group, net);
    for (const auto& tensor : {net->weight, net->turned, net->frozen, net->mean}) expect_all(tensor, 11);
    EXPECT_EQ(net->batches.item<std::int64_t>(), 1) << "rank 0's";
    EXPECT_TRUE(net->weight.requires_grad() && net->weight.is_leaf());
  });
}

TEST(ModelAverage, OverOneRankIsTheModel) {
  const Net net(3);
  average_models(Group(), net);
  expect_all(net.weight, 3);
}

TEST(ModelAverage, OfDifferentModelsNamesTheDifference) {
  const auto endings = test::run_ranks(2, [](const Group& group) {
    const Net net(1, 5 + group.rank());
    average_models(group, net);
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_THAT(ending.text, HasSubstr("rank 1's parameter weight is f32 [6, 3], rank 0's is f32 [5, 3]"));
  }
}

TEST(MovingAverage, MovesToTheModelByAPartOfTheWay) {
  Net net(0);
  MovingAverage average(net, 0.75);
  double expected = 0;
  for (const double value : {4, 4, -2}) {
    net.fill(value);
    average.update();
    expected += (value - expected) / 4;
    const auto swapped = average.swap_in();
    for (const auto& tensor : {net.weight, net.turned, net.frozen, net.mean}) expect_all(tensor, expected);
    EXPECT_EQ(net.batches.item<std::int64_t>(), static_cast<std::int64_t>(value)) << "the model's";
  }
}

TEST(MovingAverage, LeavesTheModelAsItWas) {
  Net net(0.3);
  net.weight.mutable_grad() = torch::ones_like(net.weight);
  const auto pointer = net.weight.data_ptr();
  std::shared_ptr<void> swapped;
  {
    MovingAverage average(net, 0.5);
    net.fill(0.1);
    average.update();
    swapped = average.swap_in();
    expect_all(net.turned, 0.2);
  }
  swapped.reset();  // after the average is gone
  EXPECT_TRUE(torch::equal(net.weight.detach(), torch::full({5, 3}, 0.1))) << "bit for bit";
  EXPECT_TRUE(torch::equal(net.turned.detach(), torch::full({2, 3}, 0.1)));
  EXPECT_EQ(net.weight.data_ptr(), pointer);
  expect_all(net.weight.grad(), 1);
}

TEST(MovingAverage, OfHalvesLosesNoSmallMoves) {
  Net net(1, 5, torch::kBFloat16);
  MovingAverage average(net, 0.999);
  net.fill(2);
  for (int step = 0; step < 3000; ++step) average.update();  // each moves by less than a half can tell
  const auto swapped = average.swap_in();
  const double expected = 2 - std::pow(0.999, 3000);
  EXPECT_NEAR(net.weight.detach().to(torch::kFloat32).mean().item<double>(), expected, 0.01);
  EXPECT_EQ(net.weight.scalar_type(), torch::kBFloat16);
}

TEST(MovingAverage, IsMadeAnewFromACheckpointOfTheAverage) {
  Net net(0);
  auto first = std::make_unique<MovingAverage>(net, 0.75);
  net.fill(4);
  first->update();
  Net saved(0);  // as a checkpoint
  {
    const auto swapped = first->swap_in();
    saved.fill(net.weight.mean().item<double>());
  }
  first.reset();
  MovingAverage second(saved, 0.75);  // as if it had been loaded into the model
  saved.fill(8);
  second.update();
  const auto swapped = second.swap_in();
  expect_all(saved.weight, 1 + (8 - 1) / 4.0);
}

TEST(MovingAverage, RefusesWhatWouldBeWrong) {
  const auto refusal = [](const auto& action) -> std::string {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "accepted";
  };
  const Net net(1);
  EXPECT_EQ(refusal([&] { const MovingAverage average(net, 1); }),
            "a moving average's decay is at least 0 and less than 1, found 1");
  EXPECT_EQ(refusal([&] { const MovingAverage average(net, std::nan("")); }),
            "a moving average's decay is at least 0 and less than 1, found nan");
  MovingAverage average(net);
  auto swapped = average.swap_in();
  const std::string twice = "a moving average is swapped in: let what swap_in() returned go first";
  EXPECT_EQ(refusal([&] { average.update(); }), twice);
  EXPECT_EQ(refusal([&] { (void)average.swap_in(); }), twice);
  swapped.reset();
  EXPECT_EQ(refusal([&] { average.update(); }), "accepted");
}

}  // namespace
}  // namespace lockstep
