// The measuring program of every MPI: the peer's own mpicxx compiles it (mpi.py), and it is timed as Lockstep
// is (collectives/measure.h). MPI has no bf16: that row does what its users do, an operation of their own.
#include <mpi.h>

#include <cstdio>
#include <exception>

#include "collectives/measure.h"

namespace {

using bench::Case;

float to_float(std::uint16_t half) {
  const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16U;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::uint16_t round_to_bf16(float value) {  // to nearest even
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

void add_bf16(void* in, void* in_out, int* count, MPI_Datatype*) {
  const auto* source = static_cast<const std::uint16_t*>(in);
  auto* sum = static_cast<std::uint16_t*>(in_out);
  for (int i = 0; i < *count; ++i) sum[i] = round_to_bf16(to_float(sum[i]) + to_float(source[i]));
}

class Mpi final : public bench::Contestant {
 public:
  explicit Mpi(std::size_t bytes) : memory_(bytes) { MPI_Op_create(add_bf16, 1, &add_bf16_); }
  ~Mpi() override { MPI_Op_free(&add_bf16_); }
  std::byte* buffer() override { return memory_.span().data(); }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  std::function<void()> prepare(const Case& what) override {
    if (what.op != "all_reduce") throw std::invalid_argument("unknown operation '" + what.op + "'");
    const bool floats = what.dtype == "f32";
    return [data = buffer(), count = static_cast<int>(what.elements),
            type = floats ? MPI_FLOAT : MPI_UINT16_T, op = floats ? MPI_SUM : add_bf16_] {
      MPI_Allreduce(MPI_IN_PLACE, data, count, type, op, MPI_COMM_WORLD);
    };
  }

 private:
  bench::Memory memory_;
  MPI_Op add_bf16_ = MPI_OP_NULL;
};

void run(const bench::Options& options) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != options.ranks) throw std::runtime_error("this job does not have --ranks ranks");
  const std::size_t bytes = options.most_elements() * sizeof(float);
  bench::Session session(options.session, rank, ranks, options.crowded(), bytes);
  Mpi mpi(bytes);
  for (const std::string& dtype : options.dtypes) {
    for (const std::size_t elements : options.elements) {
      bench::measure(options, session, mpi, {options.op, dtype, elements, rank, ranks}, "private");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bench::Options options = bench::parse(argc, argv);
    bench::pin(options, bench::rank_from_environment());
    MPI_Init(&argc, &argv);
    run(options);
    MPI_Finalize();
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "mpi_collectives: %s\n", error.what());
    return 1;  // the launcher ends the other ranks
  }
  return 0;
}
