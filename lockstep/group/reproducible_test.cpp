// The same contributions on any number of ranks give the same bits.
#include "lockstep/group/reproducible.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <mutex>
#include <random>

#include "lockstep/group/spare_memory.h"
#include "lockstep/group/threads_test.h"
#include "lockstep/schedule/call.h"

namespace lockstep {
namespace {

using test::failure_of;
using test::on_ranks;
using ::testing::HasSubstr;

constexpr std::size_t contributions = 21;
constexpr std::size_t elements = 1003;

/// Of all magnitudes, so that another order gives other bits.
template <class T>
std::vector<T> contribution(std::size_t index) {
  std::mt19937 random(static_cast<unsigned>(index));
  std::vector<T> values;
  for (std::size_t i = 0; i < elements; ++i) {
    const float value =
        std::ldexp(static_cast<float>(random()) * 0x1p-32F - 0.5F, static_cast<int>(random() % 12));
    if constexpr (std::same_as<T, bfloat16>) {
      values.push_back(to_bfloat16(value));
    } else {
      values.push_back(static_cast<T>(value));
    }
  }
  return values;
}

/// The result on `ranks` ranks, of which rank r has `share(r)` of the contributions, in order.
template <class T, class Share>
std::vector<T> sum_on(int ranks, ReduceOp op, Share share) {
  std::vector<T> result;
  std::mutex mutex;
  on_ranks(ranks, [&](Group& group) {
    const Range range = share(group.rank());
    std::vector<std::vector<T>> own;
    for (std::size_t i = 0; i < range.count; ++i) own.push_back(contribution<T>(range.begin + i));
    const std::vector<std::span<const T>> inputs(own.begin(), own.end());
    std::vector<T> output(elements);
    reproducible_all_reduce<T>(group, inputs, output, op);
    const std::lock_guard lock(mutex);
    if (!result.empty()) {
      EXPECT_EQ(std::memcmp(result.data(), output.data(), elements * sizeof(T)), 0) << "ranks differ";
    }
    result = output;
  });
  return result;
}

template <class T>
class Reproducible : public ::testing::Test {};
using Types = ::testing::Types<float, double, bfloat16, std::complex<float>>;
TYPED_TEST_SUITE(Reproducible, Types);

TYPED_TEST(Reproducible, SumsHaveTheSameBitsOnAnyNumberOfRanks) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average}) {
    const auto alone = sum_on<TypeParam>(1, op, [](int) { return Range{0, contributions}; });
    for (const int ranks : {2, 3, 4, 8}) {
      const auto shared = sum_on<TypeParam>(
          ranks, op, [&](int rank) { return schedule::chunk_of(contributions, rank, ranks); });
      EXPECT_EQ(std::memcmp(alone.data(), shared.data(), elements * sizeof(TypeParam)), 0)
          << ranks << " ranks";
    }
  }
}

/// The same of contributions that are there one after the other.
template <class T>
std::vector<T> sum_one_by_one(int ranks, ReduceOp op) {
  std::vector<T> result(elements);
  on_ranks(ranks, [&](Group& group) {
    const auto range = schedule::chunk_of(contributions, group.rank(), group.size());
    ReproducibleSum sum(group, dtype_of<T>, elements, range.begin, contributions);
    for (std::size_t i = 0; i < range.count; ++i) {
      std::memcpy(sum.next().data(), contribution<T>(range.begin + i).data(), elements * sizeof(T));
      sum.add();
    }
    std::vector<T> output(elements);
    sum.all_reduce(std::as_writable_bytes(std::span(output)), op);
    if (group.rank() == 0) result = output;
  });
  return result;
}

TYPED_TEST(Reproducible, OneByOneTheyAreTheSame) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average}) {
    const auto alone = sum_on<TypeParam>(1, op, [](int) { return Range{0, contributions}; });
    for (const int ranks : {1, 2, 3, 8, 24}) {
      const auto shared = sum_one_by_one<TypeParam>(ranks, op);
      EXPECT_EQ(std::memcmp(alone.data(), shared.data(), elements * sizeof(TypeParam)), 0)
          << ranks << " ranks";
    }
  }
}

TEST(ReproducibleSum, OneByOneWhatIsMissingIsSaid) {
  on_ranks(2, [&](Group& group) {
    ReproducibleSum sum(group, Dtype::f64, 1, group.rank() == 0 ? 0 : 2, 4);
    std::vector<double> output(1);
    for (int i = 0; i < 1 + group.rank(); ++i) {
      std::ranges::fill(sum.next(), std::byte{0});
      sum.add();
    }
    EXPECT_THAT(failure_of([&] { sum.all_reduce(std::as_writable_bytes(std::span(output)), ReduceOp::sum); }),
                HasSubstr("rank 0 was to have 1 contributions from 0 on, of 4; its first is 0 of 3"));
    EXPECT_THAT(failure_of([&] { sum.all_reduce({}, ReduceOp::sum); }), HasSubstr("the output has 0 bytes"));
    EXPECT_THAT(failure_of([&] { sum.all_reduce(std::as_writable_bytes(std::span(output)), ReduceOp::max); }),
                HasSubstr("sums and averages only"));
  });
}

TEST(ReproducibleSum, DoesNotDependOnWhoHasHowMany) {
  const auto alone = sum_on<float>(1, ReduceOp::sum, [](int) { return Range{0, contributions}; });
  const auto uneven = sum_on<float>(4, ReduceOp::sum, [](int rank) {
    constexpr Range shares[] = {{0, 1}, {1, 0}, {1, 13}, {14, 7}};
    return shares[rank];
  });
  EXPECT_EQ(alone, uneven);
  // It is not the plain sum from left to right, which would be another one on other ranks.
  std::vector<float> plain(elements);
  for (std::size_t index = 0; index < contributions; ++index) {
    const auto values = contribution<float>(index);
    for (std::size_t i = 0; i < elements; ++i) plain[i] += values[i];
  }
  EXPECT_NE(alone, plain);
}

TEST(ReproducibleSum, RefusesWhatItCannotDo) {
  on_ranks(2, [](Group& group) {
    std::vector<float> values(4), output(4), longer(5);
    const auto refused = [&](const std::function<void()>& call) {
      return failure_of(call, ErrorCode::invalid_argument);
    };
    const std::vector<std::span<const float>> one{values}, other{longer};
    EXPECT_THAT(refused([&] { reproducible_all_reduce<float>(group, one, output, ReduceOp::max); }),
                HasSubstr("sums and averages only, not max"));
    EXPECT_THAT(refused([&] { reproducible_all_reduce<float>(group, other, output); }),
                HasSubstr("input 0 has 20 bytes, the output 16"));
    EXPECT_THAT(refused([&] { reproducible_all_reduce<float>(group, {}, output); }),
                HasSubstr("no rank has an input"));
  });
}

/// What all ranks are told where each makes a call of its own.
template <class Call>
void expect_mismatch(const Call& call, const std::string& differing) {
  on_ranks(2, [&](Group& group) {
    EXPECT_EQ(
        failure_of([&] { call(group); }, ErrorCode::mismatch),
        "ranks called different operations: rank 0 called reproducible_all_reduce (sum of f32 x 4), rank 1 "
        "called reproducible_all_reduce (" +
            differing + ")");
    std::vector<float> one{1}, sum(1);
    reproducible_all_reduce<float>(group, {one}, sum);
    EXPECT_EQ(sum[0], 2) << "the group is as it was";
  });
}

template <class T>
void reproducible_sum(const Group& group, std::size_t count, ReduceOp op = ReduceOp::sum) {
  std::vector<T> values(count), output(count);
  reproducible_all_reduce<T>(group, {values}, output, op);
}

TEST(ReproducibleSum, RanksThatDifferAreTold) {
  expect_mismatch(
      [](const Group& group) {
        reproducible_sum<float>(group, 4, group.rank() == 0 ? ReduceOp::sum : ReduceOp::average);
      },
      "average of f32 x 4");
  expect_mismatch([](const Group& group) { reproducible_sum<float>(group, group.rank() == 0 ? 4 : 5); },
                  "sum of f32 x 5");
  expect_mismatch(
      [](const Group& group) {
        group.rank() == 0 ? reproducible_sum<float>(group, 4) : reproducible_sum<std::int32_t>(group, 4);
      },
      "sum of i32 x 4");
}

TEST(ReproducibleSum, MayOverwriteItsInputs) {
  on_ranks(3, [](Group& group) {
    std::vector<float> values{1, 2, 3, 4, 5};
    const std::vector<std::span<const float>> inputs{std::span(values).first(4), std::span(values).last(4)};
    reproducible_all_reduce<float>(group, inputs, std::span(values).subspan(1));
    EXPECT_EQ(values, (std::vector<float>{1, 9, 15, 21, 27}));
  });
}

TEST(SpareBuffers, AreNoMoreThanWereUsedAtOnce) {
  SpareMemory spare;
  for (std::size_t bytes = 1000; bytes < 100'000; bytes += 1000) {
    auto one = spare.take(bytes), other = spare.take(bytes / 2);
    spare.give(std::move(one));
    spare.give(std::move(other));
  }
  EXPECT_EQ(spare.buffers(), 2U);
  const auto large = spare.take(99'000);
  EXPECT_EQ(large.size(), 99'000U);
  EXPECT_TRUE(spare.take(0).empty());
}

}  // namespace
}  // namespace lockstep
