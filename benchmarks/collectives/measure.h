// How a collective is timed, the same for Lockstep and for each peer:
//
//   repeat   every rank rewrites its buffers     so that data starts in its owner's cache, as gradients do
//            the library's barrier               so that nothing of it is under way
//            all ranks start at one moment       session.h
//            one blocking call
//            the library's barrier, session's    so that nobody rewrites what others still read
//
// The time of a call is from the first rank's beginning to the last rank's end, less what reading the clock
// costs; a figure is the median over the repetitions (of send_recv, half of it). Results are checked in the
// first one, which is not counted. What the buffers are is said in operation.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "collectives/operation.h"
#include "collectives/options.h"
#include "collectives/session.h"

namespace bench {

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

  /// Where this rank's data is before the call, and where its result is after: the same place for what works
  /// in place.
  virtual std::byte* input() = 0;
  virtual std::byte* output(const Case& what) = 0;
  virtual void barrier() = 0;
  /// The blocking call of a case, with all that can be looked up before. Throws invalid_argument for an
  /// operation or dtype that it does not have.
  virtual std::function<void()> prepare(const Case& what) = 0;
  /// Whether output() holds the operation's result after the call; what only moves as many bytes has none.
  virtual bool has_result() const { return true; }
};

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
    pattern::rewrite(what, contestant.input(), contestant.output(what));
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
    if (repetition == 0 && contestant.has_result()) pattern::check(what, contestant.output(what));
  }
  if (what.rank != 0) return;
  const std::size_t counted = repetition - warm_up;
  const double share = what.op == Operation::send_recv ? 0.5 : 1;
  std::printf(
      "{\"dtype\": \"%s\", \"elements\": %zu, \"buffer\": \"%s\", \"us\": %.4f, \"repetitions\": %zu}\n",
      what.dtype.c_str(), what.elements, name.c_str(),
      share * median_us(session, warm_up, counted, clock_cost), counted);
  static_cast<void>(std::fflush(stdout));
}

/// Works until the core has come to its clock rate, which takes some 20 ms after a rest. Libraries rest or
/// work for different times while they begin: without this the first case would be slower by a tenth for
/// some.
inline void come_up_to_speed() {
  const std::uint64_t end = now_ns() + 100'000'000;
  while (now_ns() < end) {
  }
}

/// All cases that the driver asked for, in its order. Throws invalid_argument for what makes no case.
template <class Do>
void for_each_case(const Options& options, int rank, Do act) {
  const Operation op = operation_named(options.op);
  std::size_t done = 0;
  come_up_to_speed();
  for (const std::string& dtype : options.dtypes) {
    for (const std::size_t elements : options.elements) {
      if (done++ == options.most_cases) return;
      const Case what{op, dtype, elements, rank, options.ranks};
      if (has_parts(op) && elements % static_cast<std::size_t>(options.ranks) != 0) {
        throw std::invalid_argument(std::to_string(elements) + " elements make no equal parts for all ranks");
      }
      act(what);
    }
  }
}

}  // namespace bench
