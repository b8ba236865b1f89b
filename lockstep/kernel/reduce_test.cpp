// Every result is compared, bit by bit, with the plain loop of reference_test.h, on every vector unit that
// this processor has and this build was compiled for.
#include "lockstep/kernel/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/kernel/reference_test.h"

namespace lockstep::kernel {
namespace {

using namespace test;
using testing::HasSubstr;

// ---- all shapes of a call

constexpr std::size_t most_elements = 1027;
constexpr std::array<std::size_t, 14> counts = {0,  1,  2,  3,   7,   8,   17,
                                                33, 64, 67, 131, 255, 257, most_elements};

/// Buffers that start at odd places of their memory (for a complex number also between two numbers), and show
/// when something else than their elements was written.
template <class T>
class Misaligned {
 public:
  Misaligned(const T* elements, std::size_t count, std::size_t start)
      : memory_(start * alignof(T) + (count + guard_) * sizeof(T), guard_byte_),
        start_(start),
        count_(count) {
    if (count != 0) std::memcpy(bytes(), elements, count * sizeof(T));
  }
  std::byte* bytes() { return memory_.data() + start_ * alignof(T); }
  testing::AssertionResult holds(const T* expected) {
    const auto untouched = [](std::byte byte) { return byte == guard_byte_; };
    const std::byte* end = bytes() + count_ * sizeof(T);
    if (!std::all_of(memory_.data(), bytes(), untouched))
      return testing::AssertionFailure() << "written before";
    if (!std::all_of(end, end + guard_ * sizeof(T), untouched))
      return testing::AssertionFailure() << "written after";
    return same(reinterpret_cast<const T*>(bytes()), expected, count_);
  }

 private:
  static constexpr std::size_t guard_ = 17;
  static constexpr std::byte guard_byte_{0xa5};
  std::vector<std::byte> memory_;
  std::size_t start_;
  std::size_t count_;
};

struct Shape {
  std::size_t destinations;
  std::size_t elements;
  bool in_place;  // destination d is source d, as long as there are sources
};

template <class T>
testing::AssertionResult reduces(ReduceOp op, double scale, const Buffers<T>& inputs,
                                 const std::vector<T>& expected, const Shape& shape) {
  const std::size_t first = shape.elements % 5;  // any part of the inputs has that part of the result
  const std::size_t elements = std::min(shape.elements, most_elements - first);
  const std::vector<T> junk(elements);
  std::vector<Misaligned<T>> sources;
  std::vector<Misaligned<T>> apart;
  for (std::size_t s = 0; s < inputs.size(); ++s) {
    sources.emplace_back(inputs[s].data() + first, elements, (3 * s + shape.elements) % 17);
  }
  for (std::size_t d = 0; d < shape.destinations; ++d)
    apart.emplace_back(junk.data(), elements, (5 * d + 1) % 17);

  std::vector<const std::byte*> from(inputs.size());
  std::transform(sources.begin(), sources.end(), from.begin(), [](auto& source) { return source.bytes(); });
  std::vector<Misaligned<T>*> written;
  std::vector<std::byte*> to;
  for (std::size_t d = 0; d < shape.destinations; ++d) {
    written.push_back(shape.in_place && d < sources.size() ? &sources[d] : &apart[d]);
    to.push_back(written.back()->bytes());
  }
  reduce(dtype_of_test<T>, op, elements, from, to, scale);

  for (std::size_t d = 0; d < shape.destinations; ++d) {
    if (testing::AssertionResult result = written[d]->holds(expected.data() + first); !result) {
      return result << ", destination " << d;
    }
  }
  for (std::size_t s = shape.in_place ? shape.destinations : 0; s < sources.size(); ++s) {
    if (!sources[s].holds(inputs[s].data() + first))
      return testing::AssertionFailure() << "source " << s << " changed";
  }
  return testing::AssertionSuccess();
}

template <class T>
void expect_every_shape(ReduceOp op, double scale, std::size_t ranks) {
  const Buffers<T> inputs = any_buffers<T>(ranks, most_elements, static_cast<unsigned>(ranks));
  const std::vector<T> expected = reference(op, inputs, scale);
  on_every_target([&] {
    for (std::size_t destinations = 1; destinations <= 5; ++destinations) {
      for (const std::size_t elements : counts) {
        if (elements == most_elements && destinations != 1 && destinations != 4) continue;
        for (const bool in_place : {false, true}) {
          ASSERT_TRUE(reduces(op, scale, inputs, expected, {destinations, elements, in_place}))
              << to_string(op) << " of " << to_string(dtype_of_test<T>) << ", " << ranks << " sources, "
              << destinations << " destinations, " << elements << " elements"
              << (in_place ? ", in place" : "");
        }
      }
    }
  });
}

template <class T>
class ReduceEvery : public testing::Test {};
TYPED_TEST_SUITE(ReduceEvery, AllElements, DtypeName);

TYPED_TEST(ReduceEvery, ShapeGivesTheBitsOfAPlainLoop) {
  for (std::size_t ranks = 1; ranks <= 8; ++ranks) {
    for (const ReduceOp op : all_reduce_ops) {
      if (!supports(dtype_of_test<TypeParam>, op)) continue;
      const double scale = op == ReduceOp::average ? 1.0 / static_cast<double>(ranks) : 1.0;
      expect_every_shape<TypeParam>(op, scale, ranks);
      if (this->HasFatalFailure()) return;
    }
  }
}

// ---- what arithmetic promises

template <class T>
class ReduceIntegers : public testing::Test {};
TYPED_TEST_SUITE(ReduceIntegers, Integers, DtypeName);

TYPED_TEST(ReduceIntegers, Wrap) {
  using Limits = std::numeric_limits<TypeParam>;
  const auto all = [](auto value) { return std::vector<TypeParam>(35, static_cast<TypeParam>(value)); };
  const auto minus_one = static_cast<TypeParam>(~TypeParam{0});
  on_every_target([&] {
    EXPECT_TRUE(same(reduced<TypeParam>(ReduceOp::sum, {all(Limits::max()), all(1)}), all(Limits::min())));
    EXPECT_TRUE(same(reduced<TypeParam>(ReduceOp::product, {all(minus_one), all(minus_one)}), all(1)));
    EXPECT_TRUE(same(reduced<TypeParam>(ReduceOp::product, {all(Limits::max()), all(2)}),
                     all(static_cast<TypeParam>(minus_one - 1))));
  });
}

TYPED_TEST(ReduceIntegers, AreComparedWithTheirSign) {
  using Limits = std::numeric_limits<TypeParam>;
  const std::vector<TypeParam> least(35, Limits::min());
  const std::vector<TypeParam> greatest(35, Limits::max());
  on_every_target([&] {
    EXPECT_TRUE(same(reduced<TypeParam>(ReduceOp::min, {greatest, least}), least));
    EXPECT_TRUE(same(reduced<TypeParam>(ReduceOp::max, {greatest, least}), greatest));
  });
}

TEST(ReduceBools, AreOrAndAnd) {
  using enum Truth;
  const Buffers<Truth> all_pairs = {{no, no, yes, yes}, {no, yes, no, yes}};
  const std::vector<Truth> disjunction = {no, yes, yes, yes};
  const std::vector<Truth> conjunction = {no, no, no, yes};
  const std::vector<Truth> difference = {no, yes, yes, no};
  on_every_target([&] {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::bor})
      EXPECT_TRUE(same(reduced(op, all_pairs), disjunction)) << to_string(op);
    for (const ReduceOp op : {ReduceOp::product, ReduceOp::min, ReduceOp::band})
      EXPECT_TRUE(same(reduced(op, all_pairs), conjunction)) << to_string(op);
    EXPECT_TRUE(same(reduced(ReduceOp::bxor, all_pairs), difference));
  });
}

TEST(Reduce, FoldsFromTheFirstSourceOn) {
  const auto all = [](double value) { return std::vector<double>(35, value); };
  on_every_target([&] {
    EXPECT_TRUE(same(reduced<double>(ReduceOp::sum, {all(1e300), all(-1e300), all(1)}), all(1)));
    EXPECT_TRUE(same(reduced<double>(ReduceOp::sum, {all(1), all(1e300), all(-1e300)}), all(0)));
  });
}

TEST(Reduce, OfOneSourceCopiesEvenASignallingNaN) {
  const std::vector<float16> sources(3, float16{0x7c01});
  EXPECT_EQ(reduced<float16>(ReduceOp::sum, {sources}), sources);
}

TEST(Reduce, MayBeCalledFirstByManyThreadsAtOnce) {
  hwy::SetSupportedTargetsForTest(0);  // as at the start of a program: no target was chosen yet
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      const std::vector<int> mine(1000, t);
      EXPECT_EQ(reduced<int>(ReduceOp::sum, {mine, mine})[999], 2 * t);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- refusals

void expect_refused(Dtype dtype, ReduceOp op, double scale = 1.0, std::size_t sources = 2,
                    std::size_t destinations = 2) {
  std::array<std::byte, 16> memory{};
  const std::vector<const std::byte*> from(sources, memory.data());
  const std::vector<std::byte*> to(destinations, memory.data());
  try {
    reduce(dtype, op, 1, from, to, scale);
    FAIL() << to_string(op) << " of " << to_string(dtype) << " was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr(to_string(op)));
    EXPECT_THAT(error.what(), HasSubstr(to_string(dtype)));
  }
}

/// The table of reduce.h.
std::set<ReduceOp> operations_on(Dtype dtype) {
  using enum ReduceOp;
  switch (dtype) {
    case Dtype::complex64:
    case Dtype::complex128: return {sum, average};
    case Dtype::f16:
    case Dtype::bf16:
    case Dtype::f32:
    case Dtype::f64: return {sum, product, min, max, average};
    default: return {sum, product, min, max, band, bor, bxor};
  }
}

TEST(Reduce, DoesWhatItSaysAndRefusesTheRest) {
  for (const Dtype dtype : all_dtypes) {
    const auto operations = operations_on(dtype);
    for (const ReduceOp op : all_reduce_ops) {
      EXPECT_EQ(supports(dtype, op), operations.contains(op)) << to_string(op) << " of " << to_string(dtype);
      if (!operations.contains(op)) expect_refused(dtype, op);
    }
  }
}

TEST(Reduce, RefusesNumbersThatAreNoTypeOrOperation) {
  for (const int number : {15, 77, 255}) {
    EXPECT_FALSE(supports(static_cast<Dtype>(number), ReduceOp::sum));
    EXPECT_FALSE(supports(Dtype::f32, static_cast<ReduceOp>(number)));
    expect_refused(static_cast<Dtype>(number), ReduceOp::sum);
    expect_refused(Dtype::f32, static_cast<ReduceOp>(number));
  }
}

TEST(Reduce, NeedsASourceAndADestination) {
  expect_refused(Dtype::f32, ReduceOp::sum, 1.0, 0, 1);
  expect_refused(Dtype::f32, ReduceOp::sum, 1.0, 1, 0);
}

TEST(Reduce, ScalesNeitherIntegersNorBools) {
  for (const Dtype dtype : all_dtypes) {
    if (!supports(dtype, ReduceOp::average)) expect_refused(dtype, ReduceOp::sum, 0.5);
  }
}

}  // namespace
}  // namespace lockstep::kernel
