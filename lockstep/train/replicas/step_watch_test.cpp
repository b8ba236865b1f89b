// StepWatch is tested where it is used, in sharded_optimizer_test.cpp.
#include "lockstep/train/replicas/step_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string said_while(const std::function<void()>& act) {
  testing::internal::CaptureStderr();
  act();
  return testing::internal::GetCapturedStderr();
}

/// Looks before each of so many forwards, and changes the parameter by `step` after them.
template <class Step>
std::string said_during(int forwards, StillParameters& watch, const std::vector<NamedTensor>& parameters,
                        Step step) {
  return said_while([&] {
    for (int i = 0; i < forwards; ++i) {
      watch.look(parameters);
      step();
    }
  });
}

TEST(StillParameters, WarnsOnceWhereNothingChangesThem) {
  const std::vector<NamedTensor> parameters = {{"weight", torch::ones({3})}, {"bias", torch::ones({1})}};
  StillParameters watch;
  const std::string said = said_during(3 * StillParameters::most_forwards, watch, parameters, [] {});
  EXPECT_THAT(said, HasSubstr("no parameter of a wrapped model changed during 100 training forwards"));
  EXPECT_EQ(said.find("no parameter"), said.rfind("no parameter"));
}

TEST(StillParameters, SaysNothingWhereSomethingDoes) {
  const std::vector<NamedTensor> parameters = {{"weight", torch::ones({3})}, {"bias", torch::ones({1})}};
  StillParameters watch;
  int forward = 0;
  const auto seldom = [&] {
    if (++forward % (StillParameters::most_forwards - 1) == 0) parameters[0].tensor.add_(1);
  };
  EXPECT_EQ(said_during(3 * StillParameters::most_forwards, watch, parameters, seldom), "");
  EXPECT_EQ(said_during(3 * StillParameters::most_forwards, watch, parameters,
                        [&] { parameters[1].tensor.variable_data().add_(1); }),
            "")
      << "libtorch does not count changes that are made through data()";
}

TEST(StillParameters, AreThoseOfAModelWhoseOptimizerHasOthers) {
  const std::string said = said_while([] {
    test::on_ranks(2, [](const Group& group) {
      auto net = test::ones(3, 2);
      const auto copy = std::dynamic_pointer_cast<torch::nn::LinearImpl>(net->clone());
      torch::optim::SGD optimizer(copy->parameters(), 0.1);
      DistributedDataParallel ddp(net, group);
      for (int step = 0; step <= StillParameters::most_forwards; ++step) {
        optimizer.zero_grad();
        ddp(test::row(1)).sum().backward();
        optimizer.step();
      }
    });
  });
  EXPECT_THAT(said, HasSubstr("build it from the wrapper's parameters()"));
}

}  // namespace
}  // namespace lockstep
