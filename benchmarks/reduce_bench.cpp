// What a reduction costs on one core, as the arena push calls it: p ranks' buffers in, the result into the
// same p buffers. Bytes per second count every read and every write (2pn), so that they compare with memory
// bandwidth.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "lockstep/kernel/reduce.h"

namespace {

using lockstep::Dtype;
using lockstep::ReduceOp;

void in_place(benchmark::State& state, Dtype dtype, ReduceOp op, double scale) {
  const auto ranks = static_cast<std::size_t>(state.range(0));
  const auto elements = static_cast<std::size_t>(state.range(1)) / sizeof(float);  // the same for every dtype
  const std::size_t bytes = elements * lockstep::size_of(dtype);
  std::vector<std::vector<std::byte>> buffers(ranks, std::vector<std::byte>(bytes));  // zeros stay zeros
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;
  for (auto& buffer : buffers) {
    sources.push_back(buffer.data());
    destinations.push_back(buffer.data());
  }
  while (state.KeepRunning()) {
    lockstep::kernel::reduce(dtype, op, elements, sources, destinations, scale);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(2 * ranks * bytes));
}

// The same loop without arithmetic: what this core's memory allows.
void copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<std::byte> from(bytes);
  std::vector<std::byte> to(bytes);
  while (state.KeepRunning()) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(2 * bytes));
}

// range(1): bytes of one rank's buffer if it were f32, so that rows of different dtypes have the same element
// count.
void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"ranks", "f32_bytes"});
  for (const int ranks : {2, 4, 8}) {
    for (const int bytes : {4, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20}) bench->Args({ranks, bytes});
  }
}

BENCHMARK_CAPTURE(in_place, f32_sum, Dtype::f32, ReduceOp::sum, 1.0)->Apply(sizes);
BENCHMARK_CAPTURE(in_place, f32_average, Dtype::f32, ReduceOp::average, 0.5)->Apply(sizes);
BENCHMARK_CAPTURE(in_place, f32_max, Dtype::f32, ReduceOp::max, 1.0)->Apply(sizes);
BENCHMARK_CAPTURE(in_place, bf16_sum, Dtype::bf16, ReduceOp::sum, 1.0)->Apply(sizes);
BENCHMARK_CAPTURE(in_place, f16_sum, Dtype::f16, ReduceOp::sum, 1.0)->Apply(sizes);
BENCHMARK_CAPTURE(in_place, complex64_sum, Dtype::complex64, ReduceOp::sum, 1.0)->Apply(sizes);
BENCHMARK_CAPTURE(in_place, i64_product, Dtype::i64, ReduceOp::product, 1.0)->Apply(sizes);
BENCHMARK_CAPTURE(in_place, i32_bor, Dtype::i32, ReduceOp::bor, 1.0)->Apply(sizes);
BENCHMARK_CAPTURE(in_place, i8_sum, Dtype::i8, ReduceOp::sum, 1.0)->Apply(sizes);
BENCHMARK_CAPTURE(in_place, u8_product, Dtype::u8, ReduceOp::product, 1.0)->Apply(sizes);
BENCHMARK(copy)->Arg(4 << 10)->Arg(64 << 10)->Arg(1 << 20)->Arg(4 << 20)->Arg(16 << 20);

}  // namespace
