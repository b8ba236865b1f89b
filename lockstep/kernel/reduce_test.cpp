// Every result is compared, bit by bit, with a scalar loop that folds from left to right, on every vector
// unit that this processor has and this build was compiled for. A NaN is compared as NaN: its payload is
// nobody's promise.
#include "lockstep/kernel/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr std::array float_ops = {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max,
                                  ReduceOp::average};
constexpr std::array integer_ops = {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max};

template <class T>
constexpr bool is_half = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

template <class T>
auto widened(T value) {
  if constexpr (is_half<T>) {
    return to_float(value);
  } else {
    return value;
  }
}

template <class T, class Wide>
T narrowed(Wide value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return to_bfloat16(value);
  } else if constexpr (std::is_same_v<T, float16>) {
    return to_float16(value);
  } else {
    return value;
  }
}

template <class T>
using Wide = decltype(widened(T{}));

template <class W>
W combined(ReduceOp op, W a, W b) {
  if constexpr (std::is_integral_v<W>) {
    using Unsigned = std::make_unsigned_t<W>;
    if (op == ReduceOp::sum) return static_cast<W>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    if (op == ReduceOp::product) return static_cast<W>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
  } else {
    if (op == ReduceOp::sum || op == ReduceOp::average) return a + b;
    if (op == ReduceOp::product) return a * b;
    if (std::isnan(a)) return a;
  }
  if (op == ReduceOp::min) return a < b ? a : b;
  return b < a ? a : b;
}

template <class T>
using Buffers = std::vector<std::vector<T>>;

template <class T>
std::vector<T> reference(ReduceOp op, const Buffers<T>& sources, double scale) {
  std::vector<T> result;
  for (std::size_t i = 0; i < sources[0].size(); ++i) {
    Wide<T> value = widened(sources[0][i]);
    for (std::size_t s = 1; s < sources.size(); ++s) value = combined(op, value, widened(sources[s][i]));
    if constexpr (!std::is_integral_v<T>) value *= static_cast<Wide<T>>(scale);
    result.push_back(narrowed<T>(value));
  }
  return result;
}

template <class T>
bool same(T a, T b) {
  using Bytes = std::array<std::byte, sizeof(T)>;
  if (std::bit_cast<Bytes>(a) == std::bit_cast<Bytes>(b)) return true;
  if constexpr (!std::is_integral_v<T>) return std::isnan(widened(a)) && std::isnan(widened(b));
  return false;
}

template <class T>
testing::AssertionResult same(const T* actual, const T* expected, std::size_t elements) {
  if (elements == 0 || std::memcmp(actual, expected, elements * sizeof(T)) == 0)
    return testing::AssertionSuccess();
  for (std::size_t i = 0; i < elements; ++i) {
    if (!same(actual[i], expected[i])) {
      return testing::AssertionFailure() << "element " << i << " of " << elements << " is "
                                         << widened(actual[i]) << ", not " << widened(expected[i]);
    }
  }
  return testing::AssertionSuccess();
}

template <class T>
testing::AssertionResult same(const std::vector<T>& actual, const std::vector<T>& expected) {
  if (actual.size() != expected.size()) return testing::AssertionFailure() << "sizes differ";
  return same(actual.data(), expected.data(), actual.size());
}

/// The result of reduce() on whole vectors, in a destination of its own.
template <class T>
std::vector<T> reduced(ReduceOp op, const Buffers<T>& sources, double scale = 1.0) {
  std::vector<const std::byte*> from;
  for (const std::vector<T>& source : sources)
    from.push_back(reinterpret_cast<const std::byte*>(source.data()));
  std::vector<T> result(sources[0].size());
  const std::array to = {reinterpret_cast<std::byte*>(result.data())};
  reduce(dtype_of<T>, op, result.size(), from, to, scale);
  return result;
}

template <class Test>
void on_every_target(const Test& test) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    test();
    hwy::SetSupportedTargetsForTest(0);
    if (testing::Test::HasFatalFailure()) return;
  }
}

/// Mostly moderate numbers; any bits, zeros, the smallest and greatest, infinities and NaN among them.
template <class T>
T any_number(std::mt19937_64& random) {
  const std::uint64_t bits = random();
  const std::uint64_t kind = random() % 64;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(kind < 32 ? bits : bits % 1000);
  } else {
    using W = Wide<T>;
    using Limits = std::numeric_limits<W>;
    const W sign = (bits & 1) != 0 ? W{1} : W{-1};
    if (kind == 0) return narrowed<T>(sign * Limits::infinity());
    if (kind == 1) return narrowed<T>(sign * Limits::quiet_NaN());
    if (kind < 4) return narrowed<T>(sign * W{0});
    if (kind == 4) return narrowed<T>(sign * Limits::denorm_min());
    if (kind == 5) return narrowed<T>(sign * Limits::max());
    if (kind < 24) {
      std::array<std::byte, sizeof(T)> any;
      std::memcpy(any.data(), &bits, sizeof any);
      return std::bit_cast<T>(any);
    }
    return narrowed<T>(sign * std::ldexp(static_cast<W>(bits >> 40), static_cast<int>(kind % 16) - 28));
  }
}

template <class T>
Buffers<T> any_buffers(std::size_t count, std::size_t elements, unsigned seed) {
  std::mt19937_64 random(seed);
  Buffers<T> buffers(count, std::vector<T>(elements));
  for (std::vector<T>& buffer : buffers) {
    for (T& value : buffer) value = any_number<T>(random);
  }
  return buffers;
}

// ---- all shapes of a call

constexpr std::size_t most_elements = 1027;
constexpr std::array<std::size_t, 12> counts = {0, 1, 2, 3, 7, 8, 17, 33, 64, 67, 131, most_elements};

/// Buffers that start at odd places of their memory, and show when something else than their elements was
/// written.
template <class T>
class Misaligned {
 public:
  Misaligned(const T* elements, std::size_t count, std::size_t start)
      : memory_((start + count + guard_) * sizeof(T), guard_byte_), start_(start), count_(count) {
    if (count != 0) std::memcpy(bytes(), elements, count * sizeof(T));
  }
  std::byte* bytes() { return memory_.data() + start_ * sizeof(T); }
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
  reduce(dtype_of<T>, op, elements, from, to, scale);

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
              << to_string(op) << " of " << to_string(dtype_of<T>) << ", " << ranks << " sources, "
              << destinations << " destinations, " << elements << " elements"
              << (in_place ? ", in place" : "");
        }
      }
    }
  });
}

template <class T>
class ReduceEvery : public testing::Test {};
using Elements = testing::Types<float, double, std::int32_t, std::int64_t, bfloat16, float16>;

struct DtypeName {
  template <class T>
  static std::string GetName(int) {
    return std::string(to_string(dtype_of<T>));
  }
};
TYPED_TEST_SUITE(ReduceEvery, Elements, DtypeName);

TYPED_TEST(ReduceEvery, ShapeGivesTheBitsOfAPlainLoop) {
  constexpr bool integer = std::is_integral_v<TypeParam>;
  for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
    for (const ReduceOp op : float_ops) {
      if (integer && op == ReduceOp::average) continue;
      const double scale = op == ReduceOp::average ? 1.0 / static_cast<double>(ranks) : 1.0;
      expect_every_shape<TypeParam>(op, scale, ranks);
      if (this->HasFatalFailure()) return;
    }
  }
}

// ---- halves

template <class T>
class ReduceHalves : public testing::Test {};
using HalfTypes = testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(ReduceHalves, HalfTypes, DtypeName);

TYPED_TEST(ReduceHalves, OfAllBitsConvertBothWaysUnchanged) {
  std::vector<TypeParam> all;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) all.push_back({static_cast<std::uint16_t>(bits)});
  const std::vector<TypeParam> minus_zero(all.size(), TypeParam{0x8000});
  on_every_target([&] {
    const std::vector<TypeParam> result = reduced<TypeParam>(ReduceOp::sum, {all, minus_zero});
    for (std::size_t i = 0; i < all.size(); ++i) {
      const TypeParam expected =
          narrowed<TypeParam>(to_float(all[i]));  // makes a NaN quiet, else changes nothing
      ASSERT_EQ(result[i].bits, expected.bits) << "from bits " << i;
    }
  });
}

/// Numbers on, and one bit beside, the points where rounding to a half turns; with all signs and special
/// values.
std::vector<float> rounding_points() {
  std::vector<float> points;
  const auto add = [&](std::uint32_t bits) { points.push_back(std::bit_cast<float>(bits)); };
  for (std::uint32_t sign_and_exponent = 0; sign_and_exponent < 512; ++sign_and_exponent) {
    const std::uint32_t exponent = sign_and_exponent & 0xffU;
    if (exponent > 2 && exponent < 98 && exponent % 16 != 0)
      continue;  // neither half has anything special here
    if (exponent > 145 && exponent < 252 && exponent % 16 != 0) continue;
    for (std::uint32_t last_kept = 13; last_kept <= 23; ++last_kept) {  // above 13: subnormal f16; 16: bf16
      const std::uint32_t tie = 1U << (last_kept - 1);
      for (const std::uint32_t kept : {0U, 1U << last_kept, ~((1U << last_kept) - 1)}) {
        for (const std::uint32_t rest : {0U, 1U, tie - 1, tie, tie + 1}) {
          add((sign_and_exponent << 23) | ((kept | rest) & 0x7fffffU));
        }
      }
    }
  }
  return points;
}

TYPED_TEST(ReduceHalves, AreRoundedToNearestEven) {
  const std::vector<float> points = rounding_points();
  constexpr std::size_t elements = 17;  // a vector of any target and a tail
  const std::vector<TypeParam> ones(elements, narrowed<TypeParam>(1.0F));
  std::vector<TypeParam> result(elements);
  const std::array from = {reinterpret_cast<const std::byte*>(ones.data())};
  const std::array to = {reinterpret_cast<std::byte*>(result.data())};
  on_every_target([&] {
    for (const float point : points) {  // one times a scale is a way to have any f32 rounded
      reduce(dtype_of<TypeParam>, ReduceOp::sum, elements, from, to, static_cast<double>(point));
      const TypeParam expected = narrowed<TypeParam>(point);
      const bool all =
          std::all_of(result.begin(), result.end(), [&](TypeParam value) { return same(value, expected); });
      ASSERT_TRUE(all) << std::hexfloat << point << " becomes " << to_float(result[0]) << " or "
                       << to_float(result[elements - 1]) << ", not " << to_float(expected);
    }
  });
}

TYPED_TEST(ReduceHalves, AreAccumulatedInFullAndRoundedOnce) {
  const float first_gap = std::is_same_v<TypeParam, bfloat16> ? 256 : 2048;  // from here on, x + 1 is no half
  const auto twenty = [](float value) { return std::vector<TypeParam>(20, narrowed<TypeParam>(value)); };
  on_every_target([&] {
    EXPECT_TRUE(same(reduced<TypeParam>(ReduceOp::sum, {twenty(first_gap), twenty(1), twenty(1)}),
                     twenty(first_gap + 2)));
    EXPECT_TRUE(same(reduced<TypeParam>(ReduceOp::average, {twenty(first_gap), twenty(1), twenty(1)}, 0.5),
                     twenty(first_gap / 2 + 1)));
  });
}

// ---- what arithmetic promises

template <class T>
class ReduceFloats : public testing::Test {};
using FloatTypes = testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(ReduceFloats, FloatTypes, DtypeName);

TYPED_TEST(ReduceFloats, KeepNaNWhicheverSourceHasIt) {
  using W = Wide<TypeParam>;
  const auto nan = narrowed<TypeParam>(std::numeric_limits<W>::quiet_NaN());
  constexpr std::size_t elements = 67;
  on_every_target([&] {
    for (const ReduceOp op : float_ops) {
      for (std::size_t ranks = 2; ranks <= 5; ++ranks) {
        for (std::size_t who = 0; who < ranks; ++who) {
          Buffers<TypeParam> sources(ranks, std::vector<TypeParam>(elements, narrowed<TypeParam>(W{1})));
          for (std::size_t i = 0; i < elements; i += 2) sources[who][i] = nan;
          const std::vector<TypeParam> result = reduced(op, sources);
          for (std::size_t i = 0; i < elements; ++i) {
            ASSERT_EQ(std::isnan(widened(result[i])), i % 2 == 0)
                << to_string(op) << ", NaN from source " << who << " of " << ranks << ", element " << i;
          }
        }
      }
    }
  });
}

TYPED_TEST(ReduceFloats, OfEqualZerosMinAndMaxKeepTheLast) {
  const std::vector<TypeParam> plus(35, narrowed<TypeParam>(Wide<TypeParam>{0}));
  const std::vector<TypeParam> minus(35, narrowed<TypeParam>(-Wide<TypeParam>{0}));
  on_every_target([&] {
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
      EXPECT_TRUE(std::signbit(widened(reduced<TypeParam>(op, {plus, minus})[0])));
      EXPECT_FALSE(std::signbit(widened(reduced<TypeParam>(op, {minus, plus})[0])));
      EXPECT_TRUE(std::signbit(widened(reduced<TypeParam>(op, {plus, minus})[34])));
      EXPECT_FALSE(std::signbit(widened(reduced<TypeParam>(op, {minus, plus})[34])));
    }
  });
}

template <class T>
class ReduceIntegers : public testing::Test {};
using IntegerTypes = testing::Types<std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(ReduceIntegers, IntegerTypes, DtypeName);

TYPED_TEST(ReduceIntegers, Wrap) {
  using Limits = std::numeric_limits<TypeParam>;
  const auto all = [](TypeParam value) { return std::vector<TypeParam>(35, value); };
  on_every_target([&] {
    EXPECT_TRUE(same(reduced<TypeParam>(ReduceOp::sum, {all(Limits::max()), all(1)}), all(Limits::min())));
    EXPECT_TRUE(
        same(reduced<TypeParam>(ReduceOp::product, {all(Limits::min()), all(-1)}), all(Limits::min())));
    EXPECT_TRUE(
        same(reduced<TypeParam>(ReduceOp::product, {all(Limits::max()), all(Limits::max())}), all(1)));
  });
}

TEST(Reduce, FoldsFromTheFirstSourceOn) {
  const auto all = [](double value) { return std::vector<double>(35, value); };
  on_every_target([&] {
    EXPECT_TRUE(same(reduced<double>(ReduceOp::sum, {all(1e300), all(-1e300), all(1)}), all(1)));
    EXPECT_TRUE(same(reduced<double>(ReduceOp::sum, {all(1), all(1e300), all(-1e300)}), all(0)));
  });
}

TEST(Reduce, ScalesInThePrecisionOfTheAccumulator) {
  const double third = 1.0 / 3.0;
  EXPECT_EQ(reduced<double>(ReduceOp::average, {{1.0}, {1.0}, {2.0}}, third)[0], 4.0 * third);
  EXPECT_EQ(reduced<float>(ReduceOp::average, {{1.0F}, {1.0F}, {2.0F}}, third)[0],
            4.0F * static_cast<float>(third));
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
  std::array<std::byte, 8> memory{};
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

TEST(Reduce, RefusesWhatIsNotDefined) {
  for (const ReduceOp op : float_ops) {
    EXPECT_FALSE(supports(Dtype::u8, op));
    expect_refused(Dtype::u8, op);
  }
  for (const Dtype dtype : {Dtype::i32, Dtype::i64}) {
    EXPECT_FALSE(supports(dtype, ReduceOp::average));
    expect_refused(dtype, ReduceOp::average);
    expect_refused(dtype, ReduceOp::sum, 0.5);
  }
  expect_refused(static_cast<Dtype>(77), ReduceOp::sum);
  expect_refused(Dtype::f32, static_cast<ReduceOp>(77));
}

TEST(Reduce, NeedsASourceAndADestination) {
  expect_refused(Dtype::f32, ReduceOp::sum, 1.0, 0, 1);
  expect_refused(Dtype::f32, ReduceOp::sum, 1.0, 1, 0);
}

TEST(Reduce, SupportsEverythingElse) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    for (const ReduceOp op : float_ops) EXPECT_TRUE(supports(dtype, op));
  }
  for (const Dtype dtype : {Dtype::i32, Dtype::i64}) {
    for (const ReduceOp op : integer_ops) EXPECT_TRUE(supports(dtype, op));
  }
}

}  // namespace
}  // namespace lockstep
