// Lockstep's measuring program: arena and private buffers, and beside them the limit that memory sets.
// benchmarks/collectives/run starts it under `lockstep run`.
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

#include "collectives/measure.h"
#include "lockstep/kernel/reduce.h"
#include "lockstep/lockstep.h"
#include "lockstep/schedule/call.h"

namespace {

using bench::Case;

lockstep::Dtype dtype_of(const Case& what) {
  return what.dtype == "f32" ? lockstep::Dtype::f32 : lockstep::Dtype::bf16;
}

class OnBuffer : public bench::Contestant {
 public:
  OnBuffer(lockstep::Group world, std::span<std::byte> memory) : world_(std::move(world)), memory_(memory) {}
  std::byte* buffer() override { return memory_.data(); }
  void barrier() override { lockstep::barrier(world_).wait(); }
  std::function<void()> prepare(const Case& what) override {
    if (what.op != "all_reduce") throw std::invalid_argument("unknown operation '" + what.op + "'");
    const auto bytes = memory_.first(what.elements * lockstep::size_of(dtype_of(what)));
    return [this, bytes, dtype = dtype_of(what)] {
      lockstep::all_reduce_bytes(world_, bytes, bytes, {.dtype = dtype}).wait();
    };
  }

 private:
  lockstep::Group world_;
  std::span<std::byte> memory_;
};

// What the arena push loads and stores, by all ranks at once, without any waiting: no all-reduce that reads
// every input and writes every output can be faster on this machine. (Where a chunk is smaller than a cache
// line the ranks write to the same lines, and going through the slots may be faster than this.)
class Limit final : public bench::Contestant {
 public:
  explicit Limit(bench::Session& session) : session_(session) {}
  std::byte* buffer() override { return session_.buffer(session_.rank()); }
  void barrier() override { session_.meet(); }
  std::function<void()> prepare(const Case& what) override {
    const lockstep::Range chunk = lockstep::chunk_of(what.elements, what.rank, what.ranks);
    std::vector<std::byte*> places;
    for (int rank = 0; rank < what.ranks; ++rank) {
      places.push_back(session_.buffer(rank) + chunk.begin * lockstep::size_of(dtype_of(what)));
    }
    const std::vector<const std::byte*> sources(places.begin(), places.end());
    return [places, sources, count = chunk.count, dtype = dtype_of(what)] {
      lockstep::reduce(dtype, lockstep::ReduceOp::sum, count, sources, places);
    };
  }

 private:
  bench::Session& session_;
};

void run(const bench::Options& options) {
  const lockstep::Group world = lockstep::init();
  if (world.size() != options.ranks) throw std::runtime_error("this job does not have --ranks ranks");
  const std::size_t bytes = options.most_elements() * sizeof(float);
  bench::Session session(options.session, world.rank(), world.size(), options.crowded(), bytes);
  const auto arena = world.allocate<std::byte>(bytes);
  const bench::Memory memory(bytes);
  OnBuffer on_arena(world, arena.span());
  OnBuffer on_private(world, memory.span());
  Limit limit(session);
  for (const std::string& dtype : options.dtypes) {
    for (const std::size_t elements : options.elements) {
      const Case what{options.op, dtype, elements, world.rank(), world.size()};
      for (const std::string& buffer : options.buffers) {
        bench::Contestant* contestant = nullptr;
        if (buffer == "arena") contestant = &on_arena;
        if (buffer == "private") contestant = &on_private;
        if (buffer == "limit") contestant = &limit;
        if (contestant == nullptr) throw std::invalid_argument("unknown buffer '" + buffer + "'");
        bench::measure(options, session, *contestant, what, buffer);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bench::Options options = bench::parse(argc, argv);
    bench::pin(options, bench::rank_from_environment());
    run(options);
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "lockstep_collectives: %s\n", error.what());
    return 1;
  }
  return 0;
}
