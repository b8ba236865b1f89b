#include "lockstep/train/replicas/parameter_drift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

NamedTensor named(const torch::Tensor& tensor) { return {"fc.weight", tensor}; }

TEST(ParameterDrift, HasTheSameDigestWhereParametersAreTheSame) {
  const auto tensor = torch::randn({4, 5, 6});
  ParameterDrift one({named(tensor)}), same({named(tensor.clone())});
  ParameterDrift transposed({named(tensor.permute({2, 0, 1}).contiguous().permute({1, 2, 0}))});
  for (std::uint64_t pass = 0; pass < 50; ++pass) {
    EXPECT_EQ(one.digest(pass), same.digest(pass));
    EXPECT_EQ(one.digest(pass), transposed.digest(pass)) << "in another order of memory";
  }
}

TEST(ParameterDrift, LooksAtEveryElementSoonerOrLater) {
  for (std::int64_t changed = 0; changed < 24; ++changed) {
    auto tensor = torch::ones({4, 6}), other = tensor.clone();
    other.view(-1)[changed] = 2;
    ParameterDrift one({named(tensor)}), two({named(other)});
    std::uint64_t pass = 0;
    while (pass < 1000 && one.digest(pass) == two.digest(pass)) ++pass;
    EXPECT_LT(pass, 1000U) << changed;
  }
}

TEST(ParameterDrift, HasNothingToLookAtWithoutPlainParameters) {
  ParameterDrift none({named(torch::ones({0})), named(torch::ones({2}, torch::kInt64))});
  ParameterDrift nothing({});
  EXPECT_EQ(none.digest(0), nothing.digest(0));
}

/// What every rank is told where rank 2's parameter is `other` and the others' is `value`, after so many
/// passes; empty: nothing.
std::string difference(double value, double other, std::uint64_t pass, torch::ScalarType type) {
  const auto endings = test::run_ranks(3, [&](const Group& group) {
    ParameterDrift drift({named(torch::full({3}, group.rank() == 2 ? other : value, type))});
    drift.compare(group, pass, /*has_digest=*/true);
    EXPECT_FALSE(drift.digest(2 * pass)) << "where it does not matter, the next look is later";
    EXPECT_TRUE(drift.digest(2 * pass + 1));
  });
  for (const auto& ending : endings) EXPECT_EQ(ending.text, endings[0].text);
  return endings[0].text;
}

TEST(ParameterDrift, NamesBothRanksAndBothValues) {
  EXPECT_THAT(
      difference(0.125, 0.5, 3, torch::kFloat32),
      AllOf(HasSubstr("parameter fc.weight has drifted apart: after 3 averaged backwards its element "),
            HasSubstr(" is 0.125 on rank 0 and 0.5 on rank 2. ")));
  EXPECT_THAT(difference(1, NAN, 0, torch::kFloat32), HasSubstr("is 1 on rank 0 and nan on rank 2"));
}

TEST(ParameterDrift, IsNoneWhereProcessorsRoundDifferently) {
  const double next = std::nextafter(1.0F, 2.0F);
  EXPECT_EQ(difference(1, next, 1, torch::kFloat32), "");
  EXPECT_EQ(difference(1, 1 + 100 * (next - 1), 1000, torch::kFloat32), "");
  EXPECT_NE(difference(1, 1 + 100 * (next - 1), 10, torch::kFloat32), "");
  EXPECT_NE(difference(1, next, 1000, torch::kFloat64), "");
  EXPECT_EQ(difference(1, 1 + 0x1p-10, 1, torch::kFloat16), "");
  EXPECT_EQ(difference(1, 1 + 0x1p-7, 1, torch::kBFloat16), "");
  EXPECT_EQ(difference(NAN, NAN, 1, torch::kFloat32), "");
}

TEST(ParameterDrift, IsNoneOnARankThatHasNoPart) {
  test::on_ranks(3, [](const Group& group) {
    ParameterDrift drift({named(torch::full({3}, group.rank() == 0 ? 7.0 : 1.0))});
    drift.compare(group, 5, /*has_digest=*/group.rank() != 0);
  });
}

}  // namespace
}  // namespace lockstep
