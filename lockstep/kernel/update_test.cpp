#include "lockstep/kernel/update.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/half.h"
#include "lockstep/kernel/reference_test.h"

namespace lockstep::kernel {
namespace {

using namespace test;

constexpr int steps = 4;

/// All that one slice has, and plain loops over it, from the definitions in the header.
template <class T>
struct Model {
  using W = Wide<T>;
  explicit Model(std::size_t elements, std::size_t ranks)
      : gradients(ranks, std::vector<T>(elements)),
        parameters(elements),
        master(elements),
        first(elements),
        second(elements) {
    for (std::size_t i = 0; i < elements; ++i) {
      parameters[i] = narrowed<T>(any());
      master[i] = widened(parameters[i]);
    }
  }

  W any() { return std::normal_distribution<W>()(random); }
  void draw_gradients() {
    for (auto& of_rank : gradients) {
      for (T& gradient : of_rank) gradient = narrowed<T>(any());
    }
  }

  UpdateSlice slice(double scale, std::size_t begin, std::size_t end) {
    sources.clear();
    for (const auto& of_rank : gradients)
      sources.push_back(reinterpret_cast<const std::byte*>(&of_rank[begin]));
    UpdateSlice made{.dtype = dtype_of<T>,
                     .elements = end - begin,
                     .gradients = sources,
                     .gradient_scale = scale,
                     .parameters = reinterpret_cast<std::byte*>(&parameters[begin])};
    if constexpr (is_half(dtype_of_test<T>)) made.master = &master[begin];
    return made;
  }

  W gradient(std::size_t i, double scale) const {
    W sum = widened(gradients[0][i]);
    for (std::size_t rank = 1; rank < gradients.size(); ++rank) sum += widened(gradients[rank][i]);
    return sum * static_cast<W>(scale);
  }
  void set(std::size_t i, W value) {
    master[i] = value;
    parameters[i] = narrowed<T>(value);
  }

  void sgd(const SgdStep& step, double scale) {
    const auto [rate, momentum, fresh, decay] =
        std::array{static_cast<W>(step.learning_rate), static_cast<W>(step.momentum),
                   static_cast<W>(1.0 - step.dampening), static_cast<W>(step.weight_decay)};
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      W direction = gradient(i, scale);
      if (decay != 0) direction += decay * master[i];
      if (momentum != 0) {
        first[i] = step.is_first ? direction : momentum * first[i] + fresh * direction;
        direction = step.nesterov ? direction + momentum * first[i] : first[i];
      }
      set(i, master[i] - rate * direction);
    }
  }

  void adam(const AdamStep& step, double scale) {
    const auto t = static_cast<double>(step.t);
    const auto rate = static_cast<W>(step.learning_rate / (1.0 - std::pow(step.beta1, t)));
    const auto correction = static_cast<W>(std::sqrt(1.0 - std::pow(step.beta2, t)));
    const auto beta1 = static_cast<W>(step.beta1), beta2 = static_cast<W>(step.beta2);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      W g = gradient(i, scale);
      W p = master[i];
      if (step.is_decoupled) {
        p *= static_cast<W>(1.0 - step.learning_rate * step.weight_decay);
      } else {
        g += static_cast<W>(step.weight_decay) * p;
      }
      first[i] = beta1 * first[i] + static_cast<W>(1.0 - step.beta1) * g;
      second[i] = beta2 * second[i] + static_cast<W>(1.0 - step.beta2) * (g * g);
      set(i, p - rate * (first[i] / (std::sqrt(second[i]) / correction + static_cast<W>(step.epsilon))));
    }
  }

  std::mt19937_64 random{7};
  std::vector<std::vector<T>> gradients;
  std::vector<T> parameters;
  std::vector<W> master, first, second;
  std::vector<const std::byte*> sources;
};

template <class T>
void expect_same(const Model<T>& actual, const Model<T>& expected) {
  ASSERT_TRUE(same(actual.parameters, expected.parameters));
  if constexpr (is_half(dtype_of_test<T>)) {
    ASSERT_TRUE(same(actual.master, expected.master));
  }
  ASSERT_TRUE(same(actual.first, expected.first));
  ASSERT_TRUE(same(actual.second, expected.second));
}

template <class T>
class Update : public testing::Test {
 protected:
  /// `take`: (model, its slice from an element on, that element). `expect`: the same by plain loops.
  template <class Take, class Expect>
  void compare(const Take& take, const Expect& expect) {
    for (const std::size_t elements : {1U, 7U, 67U, 301U}) {
      for (const std::size_t ranks : {1U, 2U, 3U}) {
        on_every_target([&] {
          Model<T> fused(elements, ranks), plain(elements, ranks);
          const double scale = 1.0 / static_cast<double>(ranks);
          for (int step = 0; step < steps; ++step) {
            fused.draw_gradients();
            plain.draw_gradients();
            const std::size_t cut = elements / 3;  // however slices are cut
            take(fused, fused.slice(scale, 0, cut), 0, step);
            take(fused, fused.slice(scale, cut, elements), cut, step);
            expect(plain, scale, step);
            expect_same(fused, plain);
            if (this->HasFatalFailure()) return;
          }
        });
      }
    }
  }
};
TYPED_TEST_SUITE(Update, Floats, DtypeName);

TYPED_TEST(Update, SgdIsItsDefinition) {
  using M = Model<TypeParam>;
  for (SgdStep step :
       {SgdStep{.learning_rate = 0.1}, SgdStep{.learning_rate = 0.1, .weight_decay = 0.01},
        SgdStep{.learning_rate = 0.03, .momentum = 0.9},
        SgdStep{.learning_rate = 0.03, .momentum = 0.9, .dampening = 0.2, .weight_decay = 0.1},
        SgdStep{.learning_rate = 0.03, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}}) {
    this->compare(
        [&](M& model, const UpdateSlice& slice, std::size_t begin, int number) {
          step.is_first = number == 0;
          update_sgd(slice, step.momentum != 0 ? &model.first[begin] : nullptr, step);
        },
        [&](M& model, double scale, int) { model.sgd(step, scale); });
  }
}

TYPED_TEST(Update, AdamIsItsDefinition) {
  using M = Model<TypeParam>;
  for (AdamStep step : {AdamStep{.learning_rate = 0.01, .is_decoupled = true},
                        AdamStep{.learning_rate = 0.01, .weight_decay = 0.1, .is_decoupled = true},
                        AdamStep{.learning_rate = 0.02, .beta1 = 0.8, .beta2 = 0.99, .weight_decay = 0.1}}) {
    this->compare(
        [&](M& model, const UpdateSlice& slice, std::size_t begin, int number) {
          step.t = static_cast<std::uint64_t>(number) + 1;
          update_adam(slice, &model.first[begin], &model.second[begin], step);
        },
        [&](M& model, double scale, int) { model.adam(step, scale); });
  }
}

TEST(UpdateRefuses, WhatHasNoSense) {
  const auto complaint = [](const UpdateSlice& slice) {
    try {
      update_sgd(slice, nullptr, {});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const std::byte* gradient = nullptr;
  const std::span one(&gradient, 1);
  EXPECT_EQ(complaint({.dtype = Dtype::i32, .gradients = one}),
            "update_sgd: parameters of type i32 have no gradient");
  EXPECT_EQ(complaint({.dtype = Dtype::f32}), "update_sgd: needs a gradient");
  EXPECT_EQ(complaint({.dtype = Dtype::bf16, .gradients = one}),
            "update_sgd: parameters of type bf16 need a master copy in f32");
  EXPECT_EQ(complaint({.dtype = Dtype::f32, .gradients = one}), "nothing");
}

}  // namespace
}  // namespace lockstep::kernel
