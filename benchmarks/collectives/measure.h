// How a collective is timed, the same for Lockstep and for each peer:
//
//   repeat   every rank rewrites its buffer      so that data starts in its owner's cache, as gradients do
//            the library's barrier               so that nothing of it is under way
//            all ranks start at one moment       session.h
//            one blocking call
//            the library's barrier, session's    so that nobody rewrites what others still read
//
// The time of a call is from the first rank's beginning to the last rank's end, less what reading the clock
// costs; a figure is the median over the repetitions. Results are checked in the first one, which is not
// counted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "collectives/options.h"
#include "collectives/session.h"

namespace bench {

struct Case {
  std::string op;
  std::string dtype;
  std::size_t elements = 0;  ///< per rank
  int rank = 0;
  int ranks = 1;
};

inline std::size_t size_of(const std::string& dtype) {
  if (dtype == "f32") return 4;
  if (dtype == "bf16") return 2;
  throw std::invalid_argument("unknown dtype '" + dtype + "'; known are f32 and bf16");
}

/// A rank's own memory, aligned as frameworks align theirs.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64))) {
    if (!data_) throw std::bad_alloc();
  }
  std::span<std::byte> span() const { return {data_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

/// One way of doing the operation, as one rank sees it.
class Contestant {
 public:
  Contestant() = default;
  Contestant(const Contestant&) = delete;
  Contestant& operator=(const Contestant&) = delete;
  virtual ~Contestant() = default;

  /// Where this rank's data is before the call, and its result after.
  virtual std::byte* buffer() = 0;
  virtual void barrier() = 0;
  /// The blocking call of a case, with all that can be looked up before. Throws invalid_argument for an
  /// operation or dtype that it does not have.
  virtual std::function<void()> prepare(const Case& what) = 0;
};

// Small whole numbers: their sums over up to most_ranks ranks are exact in every dtype, in any order.
namespace pattern {

inline std::uint32_t value(std::size_t index, int rank) {
  return static_cast<std::uint32_t>(index & 7U) + static_cast<std::uint32_t>(rank & 3);
}

inline std::uint16_t to_bf16(float exact) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &exact, sizeof(bits));
  return static_cast<std::uint16_t>(bits >> 16U);
}

template <class Make>
void fill(void* buffer, std::size_t elements, Make make) {
  using T = decltype(make(std::size_t{0}));
  T* out = static_cast<T*>(buffer);
  for (std::size_t i = 0; i < elements; ++i) out[i] = make(i);
}

inline void rewrite(const Case& what, void* buffer) {
  const int rank = what.rank;
  if (what.dtype == "f32") {
    fill(buffer, what.elements, [rank](std::size_t i) { return static_cast<float>(value(i, rank)); });
  } else {
    std::uint16_t table[8];
    for (std::size_t i = 0; i < 8; ++i) table[i] = to_bf16(static_cast<float>(value(i, rank)));
    fill(buffer, what.elements, [&table](std::size_t i) { return table[i & 7U]; });
  }
}

/// Throws runtime_error unless `buffer` holds the sums over all ranks.
inline void check(const Case& what, const void* buffer) {
  float sums[8] = {};
  for (std::size_t i = 0; i < 8; ++i) {
    for (int rank = 0; rank < what.ranks; ++rank) sums[i] += static_cast<float>(value(i, rank));
  }
  for (std::size_t i = 0; i < what.elements; ++i) {
    const bool right = what.dtype == "f32"
                           ? static_cast<const float*>(buffer)[i] == sums[i & 7U]
                           : static_cast<const std::uint16_t*>(buffer)[i] == to_bf16(sums[i & 7U]);
    if (!right) {
      throw std::runtime_error(what.op + " of " + std::to_string(what.elements) + " " + what.dtype +
                               ": wrong result at element " + std::to_string(i) + " on rank " +
                               std::to_string(what.rank));
    }
  }
}

}  // namespace pattern

/// What two readings of the clock add to a time: the median, in nanoseconds.
inline std::uint64_t clock_cost_ns() {
  std::vector<std::uint64_t> costs(1001);
  for (auto& cost : costs) {
    const std::uint64_t begin = now_ns();
    cost = now_ns() - begin;
  }
  std::nth_element(costs.begin(), costs.begin() + 500, costs.end());
  return costs[500];
}

/// Microseconds per call, from the times in the session.
inline double median_us(Session& session, std::size_t first, std::size_t count, std::uint64_t clock_cost) {
  std::vector<double> times;
  for (std::size_t repetition = first; repetition < first + count; ++repetition) {
    Stamps all = session.stamps(0, repetition);
    for (int rank = 1; rank < session.ranks(); ++rank) {
      all.begin_ns = std::min(all.begin_ns, session.stamps(rank, repetition).begin_ns);
      all.end_ns = std::max(all.end_ns, session.stamps(rank, repetition).end_ns);
    }
    const std::uint64_t elapsed = all.end_ns - all.begin_ns;
    times.push_back(static_cast<double>(elapsed - std::min(elapsed, clock_cost)) / 1000.0);
  }
  std::sort(times.begin(), times.end());
  return (times[(count - 1) / 2] + times[count / 2]) / 2;
}

/// Times one case. Rank 0 prints {"dtype", "elements", "buffer", "us", "repetitions"} as a line of JSON.
inline void measure(const Options& options, Session& session, Contestant& contestant, const Case& what,
                    const std::string& name) {
  const std::size_t bytes = what.elements * size_of(what.dtype);
  const std::size_t warm_up = bytes <= 65536 ? 50 : 3;
  const std::size_t most = warm_up + options.most_repetitions;
  const std::uint64_t clock_cost = clock_cost_ns();
  const auto budget_ns = static_cast<std::uint64_t>(options.budget_ms * 1e6);
  const auto call = contestant.prepare(what);
  std::size_t repetition = 0;
  std::uint64_t counted_from = 0;
  for (bool more = true; more; ++repetition) {
    if (repetition == warm_up) counted_from = now_ns();
    pattern::rewrite(what, contestant.buffer());
    contestant.barrier();
    session.start_together();
    const std::uint64_t begin = now_ns();
    call();
    session.stamps(what.rank, repetition) = {begin, now_ns()};
    contestant.barrier();
    if (what.rank == 0) {
      const std::size_t done = repetition + 1;
      session.flag() =
          done < warm_up + options.least_repetitions || (done < most && now_ns() - counted_from < budget_ns);
    }
    session.meet();
    more = session.flag();
    if (repetition == 0) pattern::check(what, contestant.buffer());
  }
  if (what.rank != 0) return;
  const std::size_t counted = repetition - warm_up;
  std::printf(
      "{\"dtype\": \"%s\", \"elements\": %zu, \"buffer\": \"%s\", \"us\": %.4f, \"repetitions\": %zu}\n",
      what.dtype.c_str(), what.elements, name.c_str(), median_us(session, warm_up, counted, clock_cost),
      counted);
  static_cast<void>(std::fflush(stdout));
}

}  // namespace bench
