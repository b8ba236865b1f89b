// What memory itself takes, by a loop that is no part of Lockstep: a triad, a = b + scalar * c, as STREAM has
// it, over as many bytes as the operation must move at the least (operation.h), by all ranks at once and
// without any waiting. Each rank works on memory of its own, freshly written as before each call, with the
// arenas' page sizes; ordinary or streamed stores, of which the faster counts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "collectives/measure.h"

namespace bench {

class Triad final : public Contestant {
 public:
  enum class Stores { ordinary, streamed };

  Triad(Session& session, Stores stores) : session_(session), stores_(stores) {}
  std::byte* input() override { return session_.buffer(session_.rank()); }
  std::byte* output(const Case&) override { return input(); }
  void barrier() override { session_.meet(); }
  bool has_result() const override { return false; }

  std::function<void()> prepare(const Case& what) override {
    const std::size_t exact = least_traffic(what) / 3 / sizeof(float);
    // Whole cache lines, so that streamed stores are aligned; a small operation's bytes as they are.
    const std::size_t count = exact < line ? std::max<std::size_t>(exact, 1) : exact / line * line;
    auto* to = reinterpret_cast<float*>(input());
    const float* left = to + count;
    const float* right = left + count;
    if (stores_ == Stores::streamed && count % line == 0) return [=] { streamed(to, left, right, count); };
    return [=] { ordinary(to, left, right, count); };
  }

 private:
  static constexpr std::size_t line = 64 / sizeof(float);
  static constexpr float scalar = 3;

  static void ordinary(float* __restrict to, const float* __restrict left, const float* __restrict right,
                       std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = left[i] + scalar * right[i];
  }

  static void streamed(float* to, const float* left, const float* right, std::size_t count) {
#if defined(__SSE__)
    constexpr std::size_t lanes = 4;
    const __m128 factor = _mm_set1_ps(scalar);
    for (std::size_t i = 0; i < count; i += lanes) {
      const __m128 product = _mm_mul_ps(factor, _mm_loadu_ps(right + i));
      _mm_stream_ps(to + i, _mm_add_ps(_mm_loadu_ps(left + i), product));
    }
    _mm_sfence();
#else
    ordinary(to, left, right, count);
#endif
  }

  Session& session_;
  Stores stores_;
};

}  // namespace bench
