// Where the time of an all-reduce of 4 bytes goes: the whole call between processes, the least that two cores
// can do, and the parts of the call one by one. benchmarks/small_call/run starts it under `lockstep run`.
#include <array>
#include <cstdio>
#include <exception>

#include "collectives/measure.h"
#include "lockstep/lockstep.h"
#include "small_call/parts.h"

namespace {

using bench::Case;

class AllReduce final : public bench::Contestant {
 public:
  explicit AllReduce(lockstep::Group world) : world_(std::move(world)), memory_(world_.allocate<float>(1)) {}
  std::byte* input() override { return reinterpret_cast<std::byte*>(memory_.data()); }
  std::byte* output(const Case&) override { return input(); }
  void barrier() override { lockstep::barrier(world_).wait(); }
  std::function<void()> prepare(const Case&) override {
    return [this] { lockstep::all_reduce(world_, memory_).wait(); };
  }

 private:
  lockstep::Group world_;
  lockstep::ArenaBuffer<float> memory_;
};

// A value and a flag in one cache line for each rank, and nothing else: no signature, no record, no deadline.
class BareExchange final : public bench::Contestant {
 public:
  explicit BareExchange(bench::Session& session) : session_(session) {}
  std::byte* input() override { return reinterpret_cast<std::byte*>(&value_); }
  std::byte* output(const Case&) override { return input(); }
  void barrier() override { session_.meet(); }
  std::function<void()> prepare(const Case& what) override {
    return [this, what] {
      ++round_;
      cell(what.rank).value = value_;
      cell(what.rank).round.store(round_, std::memory_order_release);
      float sum = 0;
      for (int rank = 0; rank < what.ranks; ++rank) {
        while (cell(rank).round.load(std::memory_order_acquire) < round_) bench::pause();
        sum += cell(rank).value;
      }
      value_ = sum;
    };
  }

 private:
  struct alignas(64) Cell {
    std::atomic<std::uint64_t> round;
    float value;
  };
  // Two lines a rank, in turn: nobody is two rounds ahead of anybody.
  Cell& cell(int rank) { return reinterpret_cast<Cell*>(session_.buffer(rank))[round_ % 2]; }

  bench::Session& session_;
  std::uint64_t round_ = 0;
  float value_ = 0;
};

void print(const char* name, double ns) { std::printf("{\"part\": \"%s\", \"ns\": %.2f}\n", name, ns); }

void measure_back_to_back(bench::Session& session, bench::Contestant& contestant, const Case& what,
                          const char* name) {
  constexpr int batches = 21;
  constexpr int calls = 1000;
  const auto call = contestant.prepare(what);
  std::array<double, batches> times;
  for (double& time : times) {
    contestant.barrier();
    session.start_together();
    const std::uint64_t begin = bench::now_ns();
    for (int i = 0; i < calls; ++i) {
      bench::pattern::rewrite(what, contestant.input(), contestant.output(what));
      call();
    }
    time = static_cast<double>(bench::now_ns() - begin) / calls;
  }
  std::nth_element(times.begin(), times.begin() + batches / 2, times.end());
  if (session.rank() == 0) print(name, times[batches / 2]);
}

void run(const bench::Options& options) {
  const lockstep::Group world = lockstep::init();
  bench::Session session(options.session, world.rank(), world.size(), options.crowded(), 4096);
  const Case what{bench::Operation::all_reduce, "f32", 1, world.rank(), world.size()};
  AllReduce all_reduce(world);
  BareExchange bare(session);
  bench::measure(options, session, all_reduce, what, "all_reduce");
  bench::measure(options, session, bare, what, "bare exchange");
  measure_back_to_back(session, all_reduce, what, "all_reduce, one after the other");
  measure_back_to_back(session, bare, what, "bare exchange, one after the other");
  if (world.rank() == 0) {
    for (const bench::Part& part : bench::measure_parts()) print(part.name.c_str(), part.ns);
  }
  lockstep::barrier(world).wait();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bench::Options options = bench::parse(argc, argv);
    bench::pin(options, bench::rank_from_environment());
    run(options);
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "small_call: %s\n", error.what());
    return 1;
  }
  return 0;
}
