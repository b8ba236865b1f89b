// The factor of a reduction, with every operation and number of sources.
#include <gtest/gtest.h>

#include <complex>
#include <vector>

#include "lockstep/kernel/reference_test.h"

namespace lockstep::kernel {
namespace {

using namespace test;

template <class T>
class ReduceScaled : public testing::Test {
 protected:
  void expect_reference(ReduceOp op, std::size_t ranks, double scale) {
    for (const std::size_t elements : {1U, 67U, 301U}) {
      const Buffers<T> inputs = any_buffers<T>(ranks, elements, static_cast<unsigned>(ranks));
      const std::vector<T> expected = reference(op, inputs, scale);
      on_every_target([&] {
        ASSERT_TRUE(same(reduced(op, inputs, scale), expected))
            << to_string(op) << " of " << ranks << " sources, times " << scale;
      });
    }
  }
};
using Scalable = testing::Types<float, double, bfloat16, float16, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(ReduceScaled, Scalable, DtypeName);

TYPED_TEST(ReduceScaled, GivesTheBitsOfAPlainLoop) {
  for (const ReduceOp op : all_reduce_ops) {
    if (!supports(dtype_of<TypeParam>, op)) continue;
    for (std::size_t ranks = 1; ranks <= 5; ++ranks) {
      for (const double scale : {1.0 / 3.0, 0.1, -7.0}) {
        this->expect_reference(op, ranks, scale);
        if (this->HasFatalFailure()) return;
      }
    }
  }
}

TEST(ReduceScale, IsAppliedInThePrecisionOfTheAccumulator) {
  const double third = 1.0 / 3.0;
  EXPECT_EQ(reduced<double>(ReduceOp::average, {{1.0}, {1.0}, {2.0}}, third)[0], 4.0 * third);
  EXPECT_EQ(reduced<float>(ReduceOp::average, {{1.0F}, {1.0F}, {2.0F}}, third)[0],
            4.0F * static_cast<float>(third));
}

}  // namespace
}  // namespace lockstep::kernel
