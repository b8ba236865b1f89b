#include "lockstep/train/replicas/same_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "lockstep/train/optimizer/option_values.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using namespace torch::optim;
using testing::HasSubstr;

ParameterGroups groups_of(const ParameterOptions& options) {
  return {OptimizerParamGroup({torch::ones({1})}, options.clone())};
}

/// Each change of `options` is seen.
template <class Options>
void expect_seen(const Options& options, const std::vector<std::function<void(Options&)>>& changes) {
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Options changed = options;
    changes[i](changed);
    EXPECT_NE(option_digest(groups_of(options)), option_digest(groups_of(changed)))
        << kind_of_options(options) << " " << i;
    const auto facts = option_facts(groups_of(options)), other = option_facts(groups_of(changed));
    ASSERT_EQ(facts.size(), other.size());
    int differences = 0;
    for (std::size_t fact = 0; fact < facts.size(); ++fact)
      differences += facts[fact].value != other[fact].value ? 1 : 0;
    EXPECT_EQ(differences, 1) << kind_of_options(options) << " " << i;
  }
}

template <class Options>
void expect_all_of_adam_seen() {
  expect_seen<Options>(Options(0.1),
                       {[](auto& one) { one.lr(0.2); },
                        [](auto& one) {
                          one.betas({0.8, 0.999});
                        },
                        [](auto& one) {
                          one.betas({0.9, 0.99});
                        },
                        [](auto& one) { one.eps(1e-3); }, [](auto& one) { one.weight_decay(0.3); },
                        [](auto& one) { one.amsgrad(true); }});
}

TEST(SameOptions, SeeEveryNumberOfLibtorchsOptimizers) {
  expect_seen<SGDOptions>(SGDOptions(0.1),
                          {[](auto& one) { one.lr(std::nextafter(0.1, 1)); },
                           [](auto& one) { one.momentum(0.9); }, [](auto& one) { one.dampening(0.1); },
                           [](auto& one) { one.weight_decay(1e-5); }, [](auto& one) { one.nesterov(true); }});
  expect_all_of_adam_seen<AdamOptions>();
  expect_all_of_adam_seen<AdamWOptions>();
  expect_seen<AdagradOptions>(
      AdagradOptions(0.1),
      {[](auto& one) { one.lr(0.2); }, [](auto& one) { one.lr_decay(0.1); },
       [](auto& one) { one.weight_decay(0.1); }, [](auto& one) { one.initial_accumulator_value(1); },
       [](auto& one) { one.eps(1e-3); }});
  expect_seen<RMSpropOptions>(RMSpropOptions(0.1),
                              {[](auto& one) { one.lr(0.2); }, [](auto& one) { one.alpha(0.1); },
                               [](auto& one) { one.eps(1e-3); }, [](auto& one) { one.weight_decay(0.1); },
                               [](auto& one) { one.momentum(0.1); }, [](auto& one) { one.centered(true); }});
  expect_seen<LBFGSOptions>(
      LBFGSOptions(0.1),
      {[](auto& one) { one.lr(0.2); }, [](auto& one) { one.max_iter(3); }, [](auto& one) { one.max_eval(3); },
       [](auto& one) { one.tolerance_grad(0.1); }, [](auto& one) { one.tolerance_change(0.1); },
       [](auto& one) { one.history_size(3); }, [](auto& one) { one.line_search_fn("strong_wolfe"); }});
}

TEST(SameOptions, TellKindsApartThatHaveTheSameNumbers) {
  EXPECT_NE(option_digest(groups_of(AdamOptions(0.1).weight_decay(0.01))),
            option_digest(groups_of(AdamWOptions(0.1).weight_decay(0.01))));
}

/// A program's own optimizer has.
struct OwnOptions : OptimizerCloneableOptions<OwnOptions> {
  double rate = 0.5;
  double get_lr() const override { return rate; }
};
struct OptionsWithoutARate : OptimizerCloneableOptions<OptionsWithoutARate> {};

TEST(SameOptions, SeeTheLearningRateOfAnyOther) {
  const auto facts = option_facts(groups_of(OwnOptions()));
  ASSERT_EQ(facts.size(), 2U);
  EXPECT_EQ(facts[0].value, "other");
  EXPECT_EQ(facts[1].name + " " + facts[1].value, "learning rate 0.5");
  EXPECT_EQ(option_facts(groups_of(OptionsWithoutARate())).size(), 1U);
}

TEST(SameOptions, NameTheGroupOfParameters) {
  const auto endings = test::run_ranks(2, [](const Group& group) {
    const std::vector<OptimizerParamGroup> groups = {
        OptimizerParamGroup({torch::ones({1})}, std::make_unique<SGDOptions>(0.1)),
        OptimizerParamGroup({torch::ones({2})}, std::make_unique<SGDOptions>(0.1 * (group.rank() + 1)))};
    require_same_options(group, SGD(groups, SGDOptions(1)));
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_THAT(ending.text,
                HasSubstr("rank 1's learning rate of parameter group 1 is 0.2, rank 0's is 0.1. Set the"));
  }
}

TEST(StepsToCompare, AreFewAndNeverTheLast) {
  int looks = 0;
  std::uint64_t longest = 0, last = 0;
  for (std::uint64_t step = 0; step < 10'000; ++step) {
    if (!is_step_to_compare(step)) continue;
    ++looks;
    longest = std::max(longest, step - last);
    last = step;
  }
  EXPECT_TRUE(is_step_to_compare(0) && is_step_to_compare(1) && is_step_to_compare(2));
  EXPECT_LE(looks, 10'000 / 64 + 10);
  EXPECT_EQ(longest, 64U);
}

}  // namespace
}  // namespace lockstep
