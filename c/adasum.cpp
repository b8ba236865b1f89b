#include "c/adasum.h"

#include <cstring>
#include <type_traits>

#include "lockstep/base/half.h"

namespace lockstep::c {
namespace {

template <class T>
double at(const std::byte* elements, std::size_t index) {
  T value{};
  std::memcpy(&value, elements + index * sizeof(T), sizeof(T));
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(to_float(value));
  }
}

template <class T>
void put(std::byte* elements, std::size_t index, double number) {
  T value{};
  if constexpr (std::is_floating_point_v<T>) {
    value = static_cast<T>(number);
  } else if constexpr (std::is_same_v<T, float16>) {
    value = to_float16(static_cast<float>(number));
  } else {
    value = to_bfloat16(static_cast<float>(number));
  }
  std::memcpy(elements + index * sizeof(T), &value, sizeof(T));
}

/// `a` becomes the Adasum of both.
template <class T>
void combine(std::byte* a, const std::byte* b, std::size_t bytes) {
  const std::size_t count = bytes / sizeof(T);
  double product = 0, of_a = 0, of_b = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = at<T>(a, i), y = at<T>(b, i);
    product += x * y;
    of_a += x * x;
    of_b += y * y;
  }
  const double first = of_a > 0 ? 1 - product / (2 * of_a) : 1,
               second = of_b > 0 ? 1 - product / (2 * of_b) : 1;
  for (std::size_t i = 0; i < count; ++i) put<T>(a, i, first * at<T>(a, i) + second * at<T>(b, i));
}

template <class T>
void adasum_as(std::span<std::byte> vectors, std::size_t ranks, std::span<const std::size_t> parts) {
  const std::size_t each = vectors.size() / ranks;
  const auto pair = [&](std::size_t lower, std::size_t upper) {
    std::size_t begin = 0;
    for (const std::size_t bytes : parts) {
      combine<T>(vectors.data() + lower * each + begin, vectors.data() + upper * each + begin, bytes);
      begin += bytes;
    }
  };
  std::size_t paired = 1;
  while (2 * paired <= ranks) paired *= 2;
  for (std::size_t rank = paired; rank < ranks; ++rank) pair(rank - paired, rank);
  for (std::size_t distance = 1; distance < paired; distance *= 2)
    for (std::size_t rank = 0; rank < paired; rank += 2 * distance) pair(rank, rank + distance);
}

}  // namespace

void adasum(Dtype dtype, std::span<std::byte> vectors, std::size_t ranks,
            std::span<const std::size_t> parts) {
  switch (dtype) {
    case Dtype::f16: return adasum_as<float16>(vectors, ranks, parts);
    case Dtype::bf16: return adasum_as<bfloat16>(vectors, ranks, parts);
    case Dtype::f64: return adasum_as<double>(vectors, ranks, parts);
    default: return adasum_as<float>(vectors, ranks, parts);
  }
}

}  // namespace lockstep::c
