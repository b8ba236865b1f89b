#include "lockstep/base/dtype.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep {
namespace {

// What the compiler can check: this file compiles, or not.
template <class T, Dtype dtype>
constexpr bool goes_as = dtype_of<T> == dtype&& dtype_of<const T> == dtype && sizeof(T) == size_of(dtype) &&
                         alignof(T) == alignment_of(dtype) && Movable<T>;

static_assert(goes_as<unsigned char, Dtype::u8> && goes_as<char8_t, Dtype::u8>);
static_assert(goes_as<signed char, Dtype::i8> && goes_as<bool, Dtype::boolean>);
static_assert(goes_as < char, std::is_signed_v<char> ? Dtype::i8 : Dtype::u8 >);
static_assert(goes_as<unsigned short, Dtype::u16> && goes_as<short, Dtype::i16>);
static_assert(goes_as<char16_t, Dtype::u16> && goes_as<char32_t, Dtype::u32>);
static_assert(goes_as<unsigned, Dtype::u32> && goes_as<int, Dtype::i32>);
static_assert(goes_as < unsigned long, sizeof(long) == 8 ? Dtype::u64 : Dtype::u32 >);
static_assert(goes_as < long, sizeof(long) == 8 ? Dtype::i64 : Dtype::i32 >);
static_assert(goes_as<unsigned long long, Dtype::u64> && goes_as<long long, Dtype::i64>);
static_assert(goes_as<float, Dtype::f32> && goes_as<double, Dtype::f64>);
static_assert(goes_as<float16, Dtype::f16> && goes_as<bfloat16, Dtype::bf16>);
static_assert(goes_as<std::complex<float>, Dtype::complex64>);
static_assert(goes_as<std::complex<double>, Dtype::complex128>);

struct Pair {
  float first, second;
};
enum class Colour : int { red };
template <class T>
constexpr bool is_only_moved = Movable<T> && !Element<T>;
static_assert(is_only_moved<std::byte> && is_only_moved<Pair> && is_only_moved<Colour>);
static_assert(is_only_moved<float*> && is_only_moved<long double> &&
              is_only_moved<std::complex<long double>>);
__extension__ using Wide = __int128;
static_assert(is_only_moved<Wide>);
static_assert(!Element<std::string_view> && !Element<float&> && !Element<void>);

TEST(Dtype, NumbersThatAreOnTheWireStay) {
  const Dtype by_number[] = {Dtype::u8,  Dtype::i32, Dtype::i64,     Dtype::f16,       Dtype::bf16,
                             Dtype::f32, Dtype::f64, Dtype::i8,      Dtype::u16,       Dtype::i16,
                             Dtype::u32, Dtype::u64, Dtype::boolean, Dtype::complex64, Dtype::complex128};
  for (std::size_t number = 0; number < std::size(by_number); ++number)
    EXPECT_EQ(static_cast<std::size_t>(by_number[number]), number) << to_string(by_number[number]);
  EXPECT_EQ(std::size(all_dtypes), std::size(by_number));
}

TEST(Dtype, EachHasANameASizeAndAnAlignmentOfItsOwn) {
  std::set<std::string_view> names;
  for (const Dtype dtype : all_dtypes) {
    EXPECT_TRUE(names.insert(to_string(dtype)).second) << to_string(dtype);
    EXPECT_NE(size_of(dtype), 0U) << to_string(dtype);
    EXPECT_EQ(size_of(dtype) % alignment_of(dtype), 0U) << to_string(dtype);
  }
  EXPECT_FALSE(names.contains("?"));
}

TEST(Dtype, ANumberThatIsNoneHasNoSize) {
  const auto none = static_cast<Dtype>(std::size(all_dtypes));
  EXPECT_EQ(to_string(none), "?");
  EXPECT_EQ(size_of(none), 0U);
}

}  // namespace
}  // namespace lockstep
